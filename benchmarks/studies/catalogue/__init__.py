"""Catalogues of millions of items: export, memory, start, times, beside peers: `make bench-catalogue`."""
