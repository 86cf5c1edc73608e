"""What asks the servers."""
