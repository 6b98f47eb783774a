"""The checks of validation that need no compiled profile, one aspect a module."""
