"""Several pairs of databases in one process: each serves a group of tenants, and none waits for another."""
