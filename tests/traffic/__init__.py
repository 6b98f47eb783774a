"""What senders send and subscribers receive, for tests with a running service and for `bin/bench`."""
