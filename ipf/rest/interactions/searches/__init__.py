"""Searches of one type and of several, and what their pages include."""
