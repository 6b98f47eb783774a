"""Systems that messages come from and go to, subscribers, and how long all is kept."""
