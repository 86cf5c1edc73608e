"""Compiled loops and the classes that plans call them by: `screen`, `exact_rows`, `bounds`, `grouped.runner`.

They need numba, and are imported only where it is installed.
"""
