"""Who may do what, as functions without IO: tokens, the keys that sign them, scopes and what they allow."""
