"""The HTTP endpoints, a module a group."""
