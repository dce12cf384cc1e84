"""One class a wire format."""
