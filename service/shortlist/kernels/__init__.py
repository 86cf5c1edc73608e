"""Compiled loops, and the objects that run them: nothing here is imported where numba is missing.

`screen`, `exact_rows`, `bounds` and `grouped.runner` are what plans use.
"""
