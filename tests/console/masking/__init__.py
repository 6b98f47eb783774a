"""Masking of patient data by role."""
