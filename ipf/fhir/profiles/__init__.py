"""Structure definitions as values: our own tables, snapshots, and the layered library that answers by canonical url."""
