"""Audit records, their chain and their feed."""
