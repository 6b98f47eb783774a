"""What happened to messages, and what operators do about it."""
