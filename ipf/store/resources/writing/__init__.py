"""The statements of a commit."""
