"""Topics: reading them, and evaluation of their triggers."""
