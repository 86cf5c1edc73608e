"""The graphs of plan `adaptive`: each part by itself, and one graph that holds all of them for single rows."""
