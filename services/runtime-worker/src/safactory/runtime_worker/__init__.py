"""The runtime-worker: takes leases from the scheduler, runs one episode a lease, and answers for how it ended."""
