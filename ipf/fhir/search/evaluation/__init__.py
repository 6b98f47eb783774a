"""A search evaluated on resources in memory, with the results of the store's SQL."""
