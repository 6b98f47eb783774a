"""The text of an expression in, its syntax tree out."""
