"""Graphs of plan `adaptive`."""
