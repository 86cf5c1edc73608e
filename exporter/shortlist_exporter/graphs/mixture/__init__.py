"""Graphs of plan `mixture`."""
