"""Loads the native library and gives its functions for this processor, called with the interpreter's lock released."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from ctypes import CDLL, CFUNCTYPE, POINTER, Structure, c_byte, c_char_p, c_float, c_int64, c_void_p
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from shortlist.errors import BadInput, ShortlistError

from .arguments import RequestStruct
from .build import LIBRARY_NAME, SOURCE_FOLDER, hash_sources

VARIABLE = "SHORTLIST_KERNELS"  # names a target, for tests and for people who compare
TARGETS = ("avx512vnni", "avxvnni", "avx2", "neon", "portable")

log = logging.getLogger("shortlist")

Function = Callable[..., Any]


@dataclass(frozen=True)
class Kernels:
    """The functions of one target, as kernels.h says what each does; in the order of its `struct kernels`."""

    target: str
    score_exactly: Function
    search_rows: Function
    answer_rows_of_groups: Function
    order_rows: Function
    score_sets: Function
    score_all_sets: Function
    answer_rows_of_sets: Function
    sum_row_set: Function
    merge_changes: Function
    prove_rows: Function
    sample_rows: Function
    bound_rows: Function
    rank_logits: Function
    answer_rows_of_logits: Function
    score_layer: Function
    answer_row_of_layer: Function
    mix_rows: Function
    mix_rows_by_previews: Function
    answer_row_of_mixture: Function
    mark_list: Function


ARRAY, STRUCT = POINTER(c_byte), c_void_p
ANSWER = CFUNCTYPE(c_int64, POINTER(RequestStruct), ARRAY, ARRAY)
PROTOTYPES = {
    "score_exactly": CFUNCTYPE(c_int64, STRUCT, ARRAY, ARRAY, ARRAY, c_int64, c_int64, c_int64),
    "search_rows": CFUNCTYPE(c_int64, STRUCT, STRUCT, STRUCT, *[ARRAY] * 7, c_int64, c_int64),
    "answer_rows_of_groups": ANSWER,
    "order_rows": CFUNCTYPE(c_int64, STRUCT, ARRAY, c_int64, ARRAY, ARRAY),
    "score_sets": CFUNCTYPE(c_int64, STRUCT, STRUCT, *[ARRAY] * 7, c_int64, c_int64),
    "score_all_sets": CFUNCTYPE(c_int64, STRUCT, STRUCT, *[ARRAY] * 5, c_int64),
    "answer_rows_of_sets": ANSWER,
    "sum_row_set": CFUNCTYPE(c_int64, STRUCT, ARRAY, c_int64, ARRAY),
    "merge_changes": CFUNCTYPE(c_int64, STRUCT, STRUCT, ARRAY, *[c_int64] * 3, *[ARRAY] * 8),
    "prove_rows": CFUNCTYPE(c_int64, STRUCT, STRUCT, STRUCT, ARRAY, c_int64, *[ARRAY] * 5, c_int64),
    "sample_rows": CFUNCTYPE(
        c_int64, *[STRUCT] * 3, *[ARRAY] * 3, c_int64, c_float, ARRAY, c_int64, *[ARRAY] * 5, c_int64
    ),
    "bound_rows": CFUNCTYPE(c_int64, STRUCT, ARRAY, c_int64, ARRAY, ARRAY),
    "rank_logits": CFUNCTYPE(c_int64, ARRAY, c_int64, c_int64, STRUCT, c_int64, *[ARRAY] * 3, c_int64),
    "answer_rows_of_logits": CFUNCTYPE(c_int64, POINTER(RequestStruct), ARRAY, c_int64, ARRAY, c_int64, ARRAY),
    "score_layer": CFUNCTYPE(None, STRUCT, ARRAY, ARRAY, c_int64),
    "answer_row_of_layer": ANSWER,
    "mix_rows": CFUNCTYPE(c_int64, STRUCT, *[ARRAY] * 3, c_int64, c_int64),
    "mix_rows_by_previews": CFUNCTYPE(c_int64, STRUCT, STRUCT, c_int64, *[ARRAY] * 6, c_int64, c_int64),
    "answer_row_of_mixture": ANSWER,
    "mark_list": CFUNCTYPE(c_int64, STRUCT, c_int64, c_int64, ARRAY),
}


class NoLibrary(ShortlistError):
    """The native library is not there."""


class FunctionTable(Structure):
    """`struct kernels` of kernels.h."""

    _fields_ = [
        ("target", c_char_p),
        *((field.name, c_void_p) for field in fields(Kernels)[1:]),
    ]


def open_kernels() -> Kernels | None:
    """Return the fastest target's functions, or those of the target that SHORTLIST_KERNELS names.

    None where there is no library, which is logged once. Raises BadInput for a target that is none, or that this
    processor lacks.
    """
    return open_target(os.environ.get(VARIABLE, ""))


def name_target() -> str | None:
    """Return the target whose functions `open_kernels` returns."""
    kernels = open_kernels()
    return kernels.target if kernels is not None else None


def require_kernels() -> Kernels:
    """Return the same; raises NoLibrary where there is none."""
    kernels = open_kernels()
    if kernels is None:
        raise NoLibrary("the native library is missing: run `make native`, or install the package again")
    return kernels


@cache
def open_target(name: str) -> Kernels | None:
    """Return the functions of a target, of the fastest if `name` is empty; None where there is no library."""
    if name and name not in TARGETS:
        raise BadInput(f"{VARIABLE}={name} is no target: choose {', '.join(TARGETS[:-1])} or {TARGETS[-1]}")
    library = load_library()
    if library is None:
        return None
    address = library.shortlist_find_kernels(name.encode())
    if not address:
        raise BadInput(f"{VARIABLE}={name}: this processor or this build lacks it, choose another or leave it unset")
    kernels = read_kernels(FunctionTable.from_address(address))
    log.info("compiled loops are on: %s", kernels.target)
    return kernels


def read_kernels(table: FunctionTable) -> Kernels:
    """Make the functions callable whose addresses are in `table`."""
    functions = {name: prototype(getattr(table, name)) for name, prototype in PROTOTYPES.items()}
    return Kernels(table.target.decode(), **functions)


@cache
def load_library() -> CDLL | None:
    """Load the library beside the sources; None where there is none of these sources, which is logged."""
    try:
        library = CDLL(str(SOURCE_FOLDER / LIBRARY_NAME))
    except OSError as error:
        log_missing(str(error))
        return None
    library.shortlist_source_hash.restype = c_char_p
    library.shortlist_find_kernels.restype, library.shortlist_find_kernels.argtypes = c_void_p, [c_char_p]
    if library.shortlist_source_hash().decode() != hash_sources():
        log_missing(f"{LIBRARY_NAME} was built from other sources")
        return None
    return library


def log_missing(reason: str) -> None:
    log.warning(
        "compiled loops are off, graphs answer in their place, up to 15 times as slowly (%s): install a C compiler and "
        "run `make native`, or install the package again",
        reason,
    )
