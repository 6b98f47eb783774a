"""Who uses the console: sign-in, sessions, saved views."""
