"""Loops that numba compiles, and the objects that run them: nothing here is imported where numba is missing.

`byte_products` and `selection` hold what is written in LLVM's terms, `kernels` one row's whole search, `row_products`
screens and gates. `search`, `bounds`, `rows` and `gather` are what plans use.
"""
