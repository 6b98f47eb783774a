"""`ipfctl`: the command line of operators.  It is a client of the admin API, and speaks HTTP only."""
