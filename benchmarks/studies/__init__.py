"""Single questions, each a command."""
