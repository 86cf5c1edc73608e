"""What an exported head is held to before its bundle is kept."""
