"""Precision and speed by kind of text: `make bench-domains`."""
