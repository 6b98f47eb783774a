"""Histories of a resource, a type and the system."""
