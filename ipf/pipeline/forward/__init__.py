"""Received HL7 v2 messages are sent on to other systems over MLLP.

What arrives: stored messages, in the order of receipt.  What leaves: each message that the filters of a destination
match, in order; the next one only after the acknowledgement.  Crash: what was sent and not yet recorded is sent again,
so a receiver recognises repeats by MSH-10.  docs/how-to/forward-messages.md.
"""
