"""Spellings of the dense layer."""
