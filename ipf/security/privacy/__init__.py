"""Security labels and Consents: what a caller may not see although its scopes allow it."""
