"""One handler an event; each joins what it reads to `Attempts`."""
