"""Graphs of plan `screen` with a gate."""
