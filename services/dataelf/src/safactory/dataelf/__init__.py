"""Dataelf: keeps every event, answers questions about them, and makes rollouts of complete groups."""
