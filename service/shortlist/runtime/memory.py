"""What glibc keeps of freed memory; other C libraries are left as they are.

By default it raises, up to 32 MiB, the size from which arrays get pages of their own, so that those of a head lie among
small things and stay the process' when it goes: 20 loads of a head of 49,152 classes took a server from 185 to 564 MiB.
"""

from __future__ import annotations

from ctypes import CDLL, c_int, c_size_t

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of malloc.h
PAGES_OF_THEIR_OWN_BYTES = 1 << 20  # from here on: few requests have arrays of this size, all heads do
FREE_END_BYTES = 2 * PAGES_OF_THEIR_OWN_BYTES  # kept at the end of a heap; as glibc chooses it
MAX_HEAPS = 2  # that threads share; each of them keeps gaps where a head was


def separate_large_arrays() -> None:
    """Give arrays of 1 MiB or more pages of their own from now on, which go back to the system with them."""
    library = CDLL(None)
    if hasattr(library, "malloc_trim"):  # of glibc; musl has a mallopt that does nothing
        library.mallopt.argtypes = [c_int, c_int]
        library.mallopt(M_MMAP_THRESHOLD, PAGES_OF_THEIR_OWN_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, FREE_END_BYTES)
        library.mallopt(M_ARENA_MAX, MAX_HEAPS)


def give_back_memory() -> None:
    """Give back to the system what is free between the smaller things."""
    library = CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim.argtypes = [c_size_t]
        library.malloc_trim(0)
