"""How an expression is evaluated: what its parts become, the state of an evaluation, the table of functions."""
