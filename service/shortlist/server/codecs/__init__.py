"""Bytes to queries, results to bytes, a module a format."""
