"""One file an event."""
