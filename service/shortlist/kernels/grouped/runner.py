"""Plan `grouped`'s search by compiled loops: its tables, laid out as they are read, and the call."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import GroupedSettings
from shortlist.core.results import FloatArray, IdArray, PlanResult
from shortlist.kernels.primitives.arrays import behaved
from shortlist.kernels.primitives.vnni import (
    BYTES,
    COLUMNS,
    LANES,
    STEP,
    VNNI,
    ZERO_POINT,
    Bytes,
    in_blocks,
    in_lines,
    in_records,
    in_two_bits,
)
from shortlist.runtime.parallel import SideBySide

from . import loops
from .tables import Tables, addresses

__all__ = ["VNNI", "CompiledSearch"]

COPIED = 1 << 28  # bytes of int8 rows of which every process may have its own
NONE: FloatArray = np.empty(0, np.float32)

Arrays = dict[str, npt.NDArray[Any]]


class CompiledSearch:
    """Threads may share it."""

    def __init__(self, bundle: Bundle, arrays: Arrays, threads: int) -> None:
        """Lay out index.safetensors' `arrays`, map the rows, and compile, which takes seconds where nothing is kept."""
        manifest = bundle.manifest
        self.side_by_side = SideBySide(threads)
        self.tables = tables(bundle, arrays)  # kept: the loops know their addresses
        self.addresses = addresses(self.tables)
        tail = arrays["tail_offset"][0], bundle.settings(GroupedSettings).tail_limit
        self.finishing = np.array([*tail, manifest.logit_scale, manifest.soft_cap or 0], np.float32)
        self.search(np.zeros((1, manifest.dim), np.float32), 1, 1, 1, 1, 1)

    @classmethod
    def open(cls, bundle: Bundle, arrays: Arrays, threads: int) -> Self | None:
        """None where the bundle has no arrays for the loops, and without the instruction that makes them fast."""
        return cls(bundle, arrays, threads) if VNNI and bundle.has_arrays("search_codes", "search_weight") else None

    def __call__(self, contexts: FloatArray, k: int, settings: GroupedSettings, full_view: int) -> PlanResult:
        """Answers of `contexts` [B, d]; `scored` is the number of candidates, `full_view` of which are exact."""
        return self.search(contexts, k, settings.classes_opened, settings.previewed, settings.candidates, full_view)

    def search(
        self, contexts: FloatArray, k: int, opened: int, previewed: int, candidates: int, full_view: int
    ) -> PlanResult:
        """Arrays for the answers, filled."""

        def fill(contexts: FloatArray, *answers: npt.NDArray[Any]) -> None:
            loops.search(contexts, self.addresses, self.finishing, opened, previewed, candidates, full_view, *answers)

        rows = len(contexts)
        ids, logits = np.empty((rows, k), np.int64), np.empty((rows, k), np.float32)
        normalizer, scored = np.empty(rows, np.float32), np.empty(rows, np.int32)
        self.side_by_side(fill, behaved(contexts), ids, logits, normalizer, scored)
        return PlanResult(ids, logits, normalizer, scored)


def tables(bundle: Bundle, arrays: Arrays) -> Tables:
    """The loops' tables of a bundle."""
    return Tables(**projection(arrays), **groups(arrays), **blocks(arrays), **previews(arrays), **rows(bundle, arrays))


def projection(arrays: Arrays) -> Arrays:
    """The projection's columns as rows in blocks, an even number of steps in each; and the tail."""
    codes, scale = arrays["projection"], arrays["projection_scale"]
    return {
        "projection": in_blocks(lanes(as_bytes(padded(codes, 2 * BYTES)))),
        "projection_scale": lanes(scale),
        "tail": arrays["tail"],
    }


def groups(arrays: Arrays) -> Arrays:
    """Of groups: the loops' blocks of these are of sixteen groups each."""
    sizes = np.diff(arrays["starts"])
    return {
        "centres": in_blocks(lanes(as_bytes(padded(arrays["group_codes"], BYTES)))),
        "centre_scale": lanes(arrays["group_scale"]),
        "reach": arrays["group_reach"],
        "sizes": sizes.astype(np.int32),
        "blocks": np.searchsorted(arrays["block_starts"], arrays["starts"]),
    }


def blocks(arrays: Arrays) -> Arrays:
    """Of blocks of classes."""
    starts = arrays["block_starts"].astype(np.int32)
    return {
        "block_rows": in_lines(as_bytes(padded(arrays["block_codes"], STEP))),
        "block_scale": arrays["block_scale"],
        "block_reach": arrays["block_reach"],
        "firsts": starts[:-1].copy(),
        "filled": np.diff(starts),
    }


def previews(arrays: Arrays) -> Arrays:
    """Of classes, in blocks of which each group's last is filled up with zeros."""
    starts = arrays["block_starts"]
    count, place = len(starts) - 1, places(starts)
    wide, fine, bias = arrays["preview"], arrays.get("fine"), arrays.get("bias", NONE)
    fine = np.empty((len(wide), 0), np.int8) if fine is None else fine
    first = in_blocks(filled(as_bytes(padded(wide, BYTES)), place, count))
    others = in_two_bits(filled(padded(fine, COLUMNS), place, count))
    scale = filled(arrays["scale"], place, count)
    fine_scale = filled(arrays["fine_scale"], place, count) if fine.size else np.zeros_like(scale)
    return {
        "previews": in_records(first, scale, others, fine_scale),
        "steps": np.array([first.shape[1], others.shape[1]], np.int32),
        "bias": filled(bias, place, count) if bias.size else NONE,
    }


def rows(bundle: Bundle, arrays: Arrays) -> Arrays:
    """Of classes: their ids, their rows in int8 and in float32."""
    return {
        "order": arrays["order"],
        "codes": lines_of(bundle.map_array("search_codes")),
        "code_scale": arrays["code_scale"],
        "code_bias": arrays.get("bias", NONE),
        "rows": bundle.map_array("search_weight"),
    }


def lines_of(codes: Bytes) -> Bytes:
    """int8 rows in whole cache lines: a copy in large pages, or what is mapped where that is too large to be copied."""
    return codes if codes.nbytes > COPIED and not codes.shape[1] % STEP else in_lines(codes)


def lanes(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[n, ...] -> [n or a few more, ...]: zeros until blocks are whole."""
    return np.pad(values, ((0, -len(values) % LANES), *((0, 0) for _ in values.shape[1:])))


def places(starts: IdArray) -> IdArray:
    """[m]: where each position is when every block, from `starts` [B + 1], is filled up."""
    shifts = LANES * np.arange(len(starts) - 1) - starts[:-1]
    return np.arange(starts[-1]) + np.repeat(shifts, np.diff(starts))


def filled(values: npt.NDArray[Any], place: IdArray, blocks: int) -> npt.NDArray[Any]:
    """`values` [m, ...] at their places of `blocks` whole blocks, zeros between."""
    wide = np.zeros((blocks * LANES, *values.shape[1:]), values.dtype)
    wide[place] = values
    return wide


def padded(values: npt.NDArray[Any], columns: int) -> npt.NDArray[Any]:
    """[n, W] -> [n, W or a few more], a multiple of `columns`: zeros, since contexts may go on there."""
    return np.pad(values, ((0, 0), (0, -values.shape[1] % columns)))


def as_bytes(values: npt.NDArray[np.int8]) -> Bytes:
    """Unsigned around `ZERO_POINT`."""
    return (values.astype(np.int16) + ZERO_POINT).astype(np.uint8)
