"""Targets of the native library that this processor has, and the parts of their loops by themselves."""

from ctypes import CFUNCTYPE, c_char_p, c_float, c_int32, c_int64, c_void_p
from types import SimpleNamespace

from shortlist.errors import BadInput
from shortlist.kernels.native.library import ARRAY, TARGETS, load_library, open_target

PARTS = {  # `struct kernel_parts` of parts.h, in its order
    "multiply_block": CFUNCTYPE(None, ARRAY, ARRAY, c_int64, ARRAY),
    "multiply_two_bit_block": CFUNCTYPE(None, ARRAY, ARRAY, c_int64, ARRAY),
    "multiply_block_by_digits": CFUNCTYPE(None, ARRAY, ARRAY, ARRAY, c_int64, ARRAY, ARRAY),
    "multiply_four_bit_block": CFUNCTYPE(None, ARRAY, ARRAY, c_int64, c_int64, ARRAY),
    "multiply_row": CFUNCTYPE(c_int32, ARRAY, ARRAY, c_int64),
    "multiply_row_by_digits": CFUNCTYPE(None, ARRAY, ARRAY, ARRAY, c_int64, ARRAY),
    "find_threshold": CFUNCTYPE(c_float, ARRAY, ARRAY, c_int64, c_int64, c_int64),
    "select_reaching": CFUNCTYPE(c_int64, ARRAY, c_int64, c_float, ARRAY),
    "select_best": CFUNCTYPE(c_int64, ARRAY, c_int64, c_int64, ARRAY, ARRAY),
    "quantize": CFUNCTYPE(c_float, ARRAY, c_int64, ARRAY),
    "sum_exp": CFUNCTYPE(c_float, ARRAY, c_int64, c_float),
    "take_best": CFUNCTYPE(None, ARRAY, ARRAY, c_int64, ARRAY, ARRAY, c_int64),
    "drop_known": CFUNCTYPE(c_int64, ARRAY, c_int64, ARRAY, c_int64, ARRAY, ARRAY),
}


def list_targets() -> list[str]:
    """Names of all of them, the portable one last; fails where the library is missing."""
    names = []
    for name in TARGETS:
        try:
            assert open_target(name) is not None, "the native library is missing: run `make native`"
        except BadInput:
            continue
        names.append(name)
    assert "portable" in names
    return names


def open_parts(target: str) -> SimpleNamespace:
    """The functions of parts.h, by name, of a target that the processor has."""
    library = load_library()
    assert library is not None, "the native library is missing: run `make native`"
    library.shortlist_find_parts.restype, library.shortlist_find_parts.argtypes = c_void_p, [c_char_p]
    addresses = (c_void_p * len(PARTS)).from_address(library.shortlist_find_parts(target.encode()))
    functions = zip(PARTS.items(), addresses, strict=True)
    return SimpleNamespace(**{name: prototype(address) for (name, prototype), address in functions})
