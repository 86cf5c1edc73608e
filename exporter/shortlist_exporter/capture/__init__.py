"""Contexts and weights out of a language model."""
