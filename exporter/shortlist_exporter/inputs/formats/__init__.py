"""Formats of files that hold an output layer: a module each; `registry` says which one reads which file."""
