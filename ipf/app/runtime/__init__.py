"""What every process of the service has: its identity and clocks, databases, stores, periodic work."""
