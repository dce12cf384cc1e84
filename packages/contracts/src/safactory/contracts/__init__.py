"""What the parts of Safactory say to each other: events, identities, endings, errors and the runner contract.

Imports no client library and does no I/O, so that every process, runners included, can afford it.
"""
