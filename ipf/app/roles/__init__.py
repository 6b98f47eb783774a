"""The roles of a process: what each starts, on what the process has once and on a pair of databases."""
