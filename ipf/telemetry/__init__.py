"""Log records, metrics, correlation ids and spans."""
