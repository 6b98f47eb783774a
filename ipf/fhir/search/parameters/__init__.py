"""Which parameters there are beyond those of R4, and which of them put a resource in a compartment."""
