"""The audit trail: what is recorded, its proof, and its forms for other systems."""
