"""Polling of sources."""
