"""The value of a parameter in, its test out, by the type of the parameter."""
