"""The audit trail, for operators."""
