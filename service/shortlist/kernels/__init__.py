"""Compiled loops by the native library, and what plans call them by: `screen`, `exact_rows`, `bounds`, `grouped`.

Each class has `open(bundle, ...)`, which gives None where the loops cannot serve the bundle, and graphs answer.
"""
