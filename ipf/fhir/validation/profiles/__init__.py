"""Profiles in, closures that check JSON values out."""
