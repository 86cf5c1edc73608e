"""Kinds of text: documents of one genre and one language, as contexts of a language model."""
