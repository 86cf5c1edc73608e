"""Hostile requests: mutated bodies, schemathesis, raw TCP."""
