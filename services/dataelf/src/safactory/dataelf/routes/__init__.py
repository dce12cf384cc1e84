"""One file a family of HTTP routes."""
