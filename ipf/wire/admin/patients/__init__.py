"""Identities of patients, merges and erasure."""
