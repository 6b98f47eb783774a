"""Tests of ipf.security.deident."""
