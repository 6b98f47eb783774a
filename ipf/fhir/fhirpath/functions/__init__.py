"""The functions of FHIRPath, by what they work on.  Each module enters its own in the table."""
