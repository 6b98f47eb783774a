"""What the service says about itself: log records, metrics, correlation ids.

Stages and wire import this room; it imports none of them.
"""
