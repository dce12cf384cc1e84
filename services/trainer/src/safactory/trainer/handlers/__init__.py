"""What the trainer does with each event: one file an event."""
