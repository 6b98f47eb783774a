"""What pages show of messages and resources: fields, elements, traces, effects, attempts.  No IO."""
