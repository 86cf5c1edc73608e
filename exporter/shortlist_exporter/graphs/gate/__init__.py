"""Graphs of plan `gated`."""
