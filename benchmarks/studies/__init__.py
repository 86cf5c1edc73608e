"""Studies of a single question each, every one a command of its own."""
