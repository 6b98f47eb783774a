"""Forwarding of received messages."""
