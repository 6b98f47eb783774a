"""Messages from their receipt to their mapping, and what operators see of them."""
