"""The factory from outside: a client, a local stack, and the `safactory` command."""
