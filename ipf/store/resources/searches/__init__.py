"""Searches as SQL."""
