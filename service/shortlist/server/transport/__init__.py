"""Sockets, signals and connections: from bytes to requests and back."""
