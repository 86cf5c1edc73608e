"""Heads inside other projects' decoders. Each module imports the library that it is for, and nothing else does."""
