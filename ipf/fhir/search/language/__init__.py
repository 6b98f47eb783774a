"""The parameters of a request in, a `Query` out: terms, chains, `_has`, `_filter`, includes."""
