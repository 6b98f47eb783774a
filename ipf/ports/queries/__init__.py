"""Searches, and what an index entry, an entry of a Bundle and a topic are."""
