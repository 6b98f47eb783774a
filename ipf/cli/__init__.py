"""`ipfctl`: the operator's command line on the admin API.  It knows no more of the service than its HTTP interface."""
