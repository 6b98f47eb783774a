"""What FHIRPath collections hold, by type, and the operators on it."""
