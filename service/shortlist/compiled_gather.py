"""Exact logits of given classes by compiled loops: rows are multiplied where they are mapped, not copied together."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from .bundle import Bundle
from .byte_products import STEP, compiled, fetch_line
from .compiled_previews import FLOAT
from .compiled_rows import behaved, mapped
from .kernels import SUMS, dot
from .result import FloatArray, IdArray

TOGETHER = 4  # rows: each is a stream of its own for the processor, which alone waits for memory half of the time
AHEAD = 512  # bytes of each of the next rows that are asked for; what follows is guessed by the processor
INLINE = 1024  # classes up to which a bias may be inside a graph


@partial(compiled, fastmath=SUMS)
def gather(rows: FloatArray, contexts: FloatArray, ids: IdArray, products: FloatArray) -> None:
    """Products [B, n] of `contexts` [B, d] with those of `rows` [V, d] that `ids` [B, n] name."""
    start, size = rows.ctypes.data, FLOAT * rows.shape[1]
    whole = ids.shape[1] - ids.shape[1] % TOGETHER
    for row in range(len(ids)):
        own, context = ids[row], contexts[row]
        for i in range(0, whole, TOGETHER):
            for j in range(i + TOGETHER, min(i + 2 * TOGETHER, own.size)):
                for line in range(0, min(AHEAD, size), STEP):
                    fetch_line(start + own[j] * size + line)
            one, two, three, four = rows[own[i]], rows[own[i + 1]], rows[own[i + 2]], rows[own[i + 3]]
            a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for j in range(context.size):
                a += one[j] * context[j]
                b += two[j] * context[j]
                c += three[j] * context[j]
                d += four[j] * context[j]
            products[row, i], products[row, i + 1], products[row, i + 2], products[row, i + 3] = a, b, c, d
        for i in range(whole, own.size):
            products[row, i] = dot(rows[own[i]], context)


class CompiledGather:
    """Equals rows.onnx, but for the order of float32 sums. Threads may share it."""

    def __init__(self, weight: FloatArray, logit_scale: float = 1.0, soft_cap: float | None = None) -> None:
        """Compile, which takes seconds where nothing is kept. weight: [V, d]."""
        self.weight, self.logit_scale, self.soft_cap = weight, logit_scale, soft_cap
        self.bias: FloatArray | None = None
        self.padding: FloatArray | None = None
        self(np.zeros((1, weight.shape[1]), np.float32), np.zeros((1, 1), np.int64))

    @classmethod
    def of(cls, bundle: Bundle) -> CompiledGather | None:
        """That of a bundle; None where it is so small that its graphs hold their weights."""
        manifest, folder = bundle.manifest, bundle.graph("rows").parent
        if manifest.classes <= INLINE:
            return None
        weight = mapped(folder / "weight.bin").reshape(manifest.classes, manifest.dim)
        found = cls(weight, manifest.logit_scale, manifest.soft_cap)
        found.bias, found.padding = (mapped_if_there(folder / f"{name}.bin") for name in ("bias", "padding"))
        return found

    def __call__(self, contexts: FloatArray, ids: IdArray) -> FloatArray:
        """[B, d], [B, n] -> [B, n] logits."""
        logits = np.empty(ids.shape, np.float32)
        gather(self.weight, behaved(contexts), behaved(ids), logits)
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what overflows
            return self.finished(logits, ids)

    def finished(self, logits: FloatArray, ids: IdArray) -> FloatArray:
        """Bias, logit scale, soft-cap and padding, in place."""
        if self.bias is not None:
            logits += self.bias[ids]
        if self.logit_scale != 1.0:
            logits *= np.float32(self.logit_scale)
        if self.soft_cap is not None:
            logits /= np.float32(self.soft_cap)
            np.tanh(logits, out=logits)
            logits *= np.float32(self.soft_cap)
        if self.padding is not None:
            logits += self.padding[ids]
        return logits


def mapped_if_there(path: Path) -> FloatArray | None:
    """A raw file of the bundle, where it has one."""
    return mapped(path) if path.is_file() else None
