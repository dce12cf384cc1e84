"""The ways of running a runner: one file a runtime."""
