"""The clients that services share; one file a backend. Imports `contracts` and never a service."""
