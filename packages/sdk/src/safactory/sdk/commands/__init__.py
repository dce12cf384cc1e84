"""What the subcommands do."""
