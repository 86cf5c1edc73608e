"""Loops in C, compiled for several processors into one library, and how it is built, loaded and called."""
