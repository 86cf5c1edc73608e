"""The service's own commands."""
