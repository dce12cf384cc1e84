"""The ways of scoring: one file a way."""
