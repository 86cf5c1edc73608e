"""Compiled loops by the native library, and what plans call them by.

`grouped`, `screen` and `mixture` search; `exact_rows` and `proofs` give exact scores and exact answers. Each class has
`open(bundle, ...)`, which gives None where the loops cannot serve the bundle, and graphs answer.
"""
