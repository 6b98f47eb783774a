"""Placements."""
