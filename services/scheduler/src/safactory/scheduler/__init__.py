"""The scheduler: expands jobs into groups and sessions, leases them to workers, and gives each one ending."""
