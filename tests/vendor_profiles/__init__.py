"""Vendor profiles."""
