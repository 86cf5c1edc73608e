"""Plan `grouped`'s search by compiled loops: its tables, laid out as they are read, and the call."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from . import kernels
from .bundle import Bundle
from .byte_products import BYTES, LANES, NIBBLES, STEP, VNNI, ZERO_POINT, Bytes, in_blocks, in_lines, in_nibbles
from .result import FloatArray, IdArray, PlanResult

__all__ = ["VNNI", "CompiledSearch"]

COPIED = 1 << 28  # bytes of int8 rows of which every process may have its own
NONE: FloatArray = np.empty(0, np.float32)


class Widths(Protocol):
    """The plan's options, read at every call, since they may be changed."""

    previewed: int
    candidates: int
    tail_limit: float

    def exact_scores(self, k: int) -> int:
        """See GroupedPlan."""


class CompiledSearch:
    """Threads may share it."""

    def __init__(self, bundle: Bundle, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Lay out index.safetensors' `arrays`, map the rows, and compile, which takes seconds where nothing is kept."""
        manifest = bundle.manifest
        self.tables = tables(bundle, arrays)
        self.tail = float(arrays["tail_offset"][0])
        self.finish = manifest.logit_scale, manifest.soft_cap or 0.0
        self.search(np.zeros((1, manifest.dim), np.float32), 1, kernels.Limits(1, 1, 1, self.tail, 0.0, *self.finish))

    def __call__(self, contexts: FloatArray, k: int, widths: Widths) -> PlanResult:
        """Answers of `contexts` [B, d]; the plan's `scored` is the number of candidates."""
        return self.search(
            contexts,
            k,
            kernels.Limits(
                widths.previewed,
                widths.candidates,
                widths.exact_scores(k),
                self.tail,
                widths.tail_limit,
                *self.finish,
            ),
        )

    def search(self, contexts: FloatArray, k: int, limits: kernels.Limits) -> PlanResult:
        """Arrays for the answers, filled."""
        rows = len(contexts)
        if not contexts.flags.aligned:
            contexts = contexts.copy()
        contexts = contexts.view()
        contexts.flags.writeable = False  # arrays of another kind would be compiled for, while a request waits
        ids, logits = np.full((rows, k), -1, np.int64), np.full((rows, k), -np.inf, np.float32)
        normalizer, scored = np.empty(rows, np.float32), np.empty(rows, np.int32)
        kernels.search(contexts, self.tables, limits, ids, logits, normalizer, scored)
        return PlanResult(ids, logits, normalizer, scored)


def tables(bundle: Bundle, arrays: dict[str, npt.NDArray[Any]]) -> kernels.Tables:
    """The kernels' tables of a bundle."""
    starts, order, bias = arrays["starts"], arrays["order"], arrays.get("bias", NONE)
    blocks = np.concatenate([[0], (-(-np.diff(starts) // LANES)).cumsum()])
    place, groups = places(starts, blocks), np.arange(len(arrays["centre"]))
    count, preview = int(blocks[-1]), arrays["preview"]
    nibbles = arrays.get("nibbles", np.empty((len(preview), 0), np.int8))  # none in older bundles
    files, (classes, dim) = bundle.manifest.options["files"], (bundle.manifest.classes, bundle.manifest.dim)
    return kernels.Tables(
        projection=arrays["projection"],
        projection_scale=arrays["projection_scale"],
        tail=arrays["tail"],
        centres=in_blocks(filled(padded(as_bytes(arrays["centre"]), BYTES), groups, whole_blocks(groups.size))),
        centre_scale=filled(arrays["centre_scale"], groups, whole_blocks(groups.size)),
        reach=arrays["reach"],
        starts=starts,
        blocks=blocks,
        previews=in_blocks(filled(padded(as_bytes(preview), BYTES), place, count)),
        scale=filled(arrays["scale"], place, count),
        nibbles=in_nibbles(filled(padded(nibbles, NIBBLES), place, count)),
        nibble_scale=filled(arrays["nibble_scale"], place, count) if nibbles.size else NONE,
        bias=filled(bias, place, count) if bias.size else NONE,
        order=order,
        codes=lines_of(mapped(bundle, files["codes"], np.uint8, (order.size, dim))),
        code_scale=arrays["code_scale"],
        code_bias=bias,
        rows=mapped(bundle, files["rows"], np.float32, (classes, dim)),
    )


def lines_of(codes: Bytes) -> Bytes:
    """int8 rows in whole cache lines: a copy in large pages, or what is mapped where that is too large to be copied."""
    return codes if codes.nbytes > COPIED and not codes.shape[1] % STEP else in_lines(codes)


def whole_blocks(count: int) -> int:
    """Blocks that hold so many."""
    return -(-count // LANES)


def places(starts: IdArray, blocks: IdArray) -> IdArray:
    """[m]: where each position is when every group fills whole blocks."""
    sizes = np.diff(starts)
    return np.arange(starts[-1]) + np.repeat(blocks[:-1] * LANES - starts[:-1], sizes)


def filled(values: npt.NDArray[Any], place: IdArray, blocks: int) -> npt.NDArray[Any]:
    """`values` [m, ...] at their places of `blocks` whole blocks, zeros between."""
    wide = np.zeros((blocks * LANES, *values.shape[1:]), values.dtype)
    wide[place] = values
    return wide


def padded(values: npt.NDArray[Any], columns: int) -> npt.NDArray[Any]:
    """[n, W] -> [n, W or a few more], a multiple of `columns`: contexts are 0 there."""
    return np.pad(values, ((0, 0), (0, -values.shape[1] % columns)))


def as_bytes(values: npt.NDArray[np.int8]) -> Bytes:
    """Unsigned around `ZERO_POINT`."""
    return (values.astype(np.int16) + ZERO_POINT).astype(np.uint8)


def mapped(bundle: Bundle, name: str, kind: Any, shape: tuple[int, int]) -> npt.NDArray[Any]:
    """A raw file of the bundle, shared with whoever else maps it."""
    return np.asarray(np.memmap(bundle.folder / name, kind, "r", shape=shape))
