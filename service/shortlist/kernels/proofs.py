"""Proved exact answers by the native library: a row's whole proof, from the context to its k best classes."""

from __future__ import annotations

from ctypes import Structure, addressof, byref, c_double, c_float, c_int64, c_void_p
from typing import Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.draws.sampling import Sampling
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, PlanResult, empty_result
from shortlist.core.rounding import Rounding
from shortlist.runtime.shared_tables import share_table

from .exact_rows import CompiledGather
from .lists import point_at_lists
from .native.arguments import check_memory, get_address, point_at
from .native.library import open_kernels, require_kernels
from .primitives.arrays import Arrays, as_carray
from .primitives.layout import LINE_BYTES, Bytes, allocate_lines, pad_lanes

ROLES = "bounds_rows", "bounds_four_bits", "bounds_change"  # raw arrays that the loops read
TABLES = (
    "common",
    "four_bit_scale",
    "four_bit_factors",
    "error_directions",
    "level_directions",
)  # of certificate.safetensors
ARRAY_FIELDS = (
    "mean", "common", "change", "four_bits", "four_bit_scale", "constant", "four_bit_factors",
    "error_directions", "level_directions", "rows", "scale", "factors", "rounding",
)  # fmt: skip
SIZE_FIELDS = (
    "dim", "block_rows", "classes", "blocks", "four_bit_lines", "row_lines", "error_count", "level_count",
)  # fmt: skip
ANCHOR_CLASSES = 64  # scored exactly at once: mostly all that the bounds leave, and much of the normaliser
MAX_RESCORED_DIVISOR = 16  # of V / 16 classes scored exactly and more dense is as fast
REST_SHARE = 0.2  # of the normaliser that classes known by 4 bits alone may add to it beyond their estimates, about
MAX_REFINED_DIVISOR = 2  # of V / 2 classes by int8 and more dense is as fast
MIN_REFINED_CLASSES = 1024  # of a small layer all classes may be
WORK = "for the bounds of a row"  # that memory may lack for

Doubles = npt.NDArray[np.float64]


class CertificateStruct(Structure):
    """`struct certificate` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [
        ("exact", c_void_p),
        *((name, c_void_p) for name in ARRAY_FIELDS),
        *((name, c_int64) for name in SIZE_FIELDS),
        *((name, c_float) for name in ("soft_cap", "largest_scale")),
        *((name, c_double) for name in ("floor", "summed")),
    ]


class ProofLimitsStruct(Structure):
    """`struct proof_limits` of kernels.h."""

    _fields_ = [*((name, c_int64) for name in ("k", "anchors", "rescored", "refined")), ("share", c_double)]


class CompiledProofs:
    """Proofs of the dense layer's answers. Threads may share it."""

    def __init__(
        self,
        bundle: Bundle,
        arrays: Arrays,
        rounding: Rounding,
        rows: CompiledGather,
        threads: int,
    ) -> None:
        """Map the rows. Raises NoLibrary.

        arrays: of certificate.safetensors. rows: exact logits. threads: that may share a call.
        """
        self.kernels, self.threads, self.rows, self.rounding = require_kernels(), threads, rows, rounding
        self.classes, self.dim = bundle.manifest.classes, bundle.manifest.dim
        self.largest, self.sample_limits = float(rounding.weight.max()), self.make_limits(0)
        maps = {role: bundle.map_array(role) for role in ROLES}
        blocks, lines = maps["bounds_four_bits"].shape[:2]
        self.tables = arrays | {
            "change": maps["bounds_change"].reshape(-1).view(np.uint16)[1 : 2 * self.dim**2 : 2].copy(),
            "four_bits": share_table(bundle.manifest.digest, "four-bits", lambda: copy_lines(maps["bounds_four_bits"])),
            "rows": maps["bounds_rows"],
            "four_bit_scale": pad_lanes(arrays["four_bit_scale"]),
            "constant": pad_lanes(arrays["constant"], -np.inf), "rounding": rounding.weight,
        }  # fmt: skip
        sizes = (self.dim, len(maps["bounds_change"]), self.classes, blocks, lines, -(-self.dim // LINE_BYTES),
                 len(self.tables["error_directions"]), len(self.tables["level_directions"]))  # fmt: skip
        addresses = [get_address(self.tables[name], find_dtype(name), name) for name in ARRAY_FIELDS]
        largest = float(self.tables["four_bit_scale"].max())
        self.struct = CertificateStruct(
            addressof(rows.struct),
            *addresses,
            *sizes,
            bundle.finishing[1] or 0.0,
            largest,
            rounding.floor,
            rounding.summed,
        )

    @classmethod
    def open(
        cls, bundle: Bundle, arrays: Arrays, rounding: Rounding, rows: CompiledGather | None, threads: int
    ) -> Self | None:
        """Open the loops; None without a library or exact rows, and where the bundle has no arrays for them."""
        if open_kernels() is None or rows is None or not bundle.has_arrays(*ROLES) or not arrays.keys() >= set(TABLES):
            return None
        return cls(bundle, arrays, rounding, rows, threads)

    def prove(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> tuple[PlanResult, Doubles]:
        """The k best permitted classes of `contexts` [B, d], and by how many nats log-probabilities may be off, [B].

        k: 0 for normalisers alone. An error that is infinite or NaN: the bounds do not decide the row, whose result is
        not to be used.
        """
        count = len(contexts)
        result, normalizers, errors = empty_result(count, max(k, 1)), np.empty(count), np.full(count, np.inf)
        result.scored.fill(0)
        limits, lists = self.make_limits(k), point_at_lists(class_filter, count)
        places = map(point_at, (result.ids, result.logits, normalizers, errors, result.scored))
        structs = byref(self.struct), byref(limits), lists
        arguments = *structs, point_at(as_carray(contexts)), count, *places
        check_memory(self.kernels.prove_rows(*arguments, self.threads), WORK)
        result.log_normalizer[:] = normalizers
        return result, errors

    def make_limits(self, k: int) -> ProofLimitsStruct:
        """How many classes a proof of k looks at more closely."""
        rescored = 3 * max(ANCHOR_CLASSES, self.classes // MAX_RESCORED_DIVISOR)  # anchors, 2 k, and what they leave
        refined = min(self.classes, max(MIN_REFINED_CLASSES, self.classes // MAX_REFINED_DIVISOR))
        return ProofLimitsStruct(k, ANCHOR_CLASSES, rescored, refined, REST_SHARE)

    def sample(self, contexts: FloatArray, sampling: Sampling, class_filter: ClassFilter) -> tuple[PlanResult, Doubles]:
        """Draws [B, draws] for `contexts` [B, d], of all permitted classes; what else is as of `prove`."""
        count, draws = len(contexts), sampling.draws
        result, normalizers, errors = empty_result(count, draws), np.empty(count), np.full(count, np.inf)
        structs = byref(self.struct), byref(self.sample_limits), point_at_lists(class_filter, count)
        rows = map(point_at, (sampling.seeds, sampling.positions, sampling.temperatures))
        places = map(point_at, (result.ids, result.logits, normalizers, errors, result.scored))
        arguments = *structs, *rows, draws, self.largest, point_at(as_carray(contexts)), count, *places
        check_memory(self.kernels.sample_rows(*arguments, self.threads), WORK)
        result.log_normalizer[:] = normalizers
        return result, errors

    def normalize(self, contexts: FloatArray) -> tuple[FloatArray, Doubles]:
        """Log-normalisers [B] of `contexts` [B, d], as of all proofs, and by how many nats they may be off, [B]."""
        result, errors = self.prove(contexts, 0, UNRESTRICTED)
        return result.log_normalizer, errors

    def holds(self, contexts: FloatArray, logits: FloatArray) -> bool:
        """Whether `logits` [B, V], computed in float32 for `contexts` [B, d], all lie within their bounds."""
        estimates, bounds = self.bound(contexts)
        return all(
            self.find_excess(contexts[row], logits[row], estimates[row], bounds[row]) <= 0 for row in range(len(logits))
        )

    def find_excess(self, context: FloatArray, logits: FloatArray, estimates: FloatArray, bounds: Doubles) -> float:
        """By how much a row's `logits` [V] are most outside of their bounds: of one class, or of all together.

        estimates [2, V] and bounds [3] are those of `bound`.
        """
        real = (logits > -np.inf).nonzero()[0]
        off = np.abs(estimates[:, real] - logits[real].astype(np.float64))
        off -= self.rounding.measure_slack(context, real)
        coarse, fine = (self.tables[name][real].astype(np.float64) for name in ("four_bit_scale", "scale"))
        squares = np.square(np.maximum(off[0], 0)[coarse > 0] / coarse[coarse > 0]).sum()
        most = (off[0] - coarse * bounds[0]).max(), (off[1] - fine * bounds[1]).max(), squares**0.5 - bounds[2]
        return float(max(most))

    def bound(self, contexts: FloatArray) -> tuple[FloatArray, Doubles]:
        """What proofs rest on: estimates [B, 2, V] by 4 bits and by int8, and [B, 3] bounds of their errors.

        These are by how many times a class's scale each may be off, and the root of the sum over all classes of the
        squared errors of 4 bits, each in its class's scale.
        """
        estimates, bounds = np.empty((len(contexts), 2, self.classes), np.float32), np.empty((len(contexts), 3))
        arguments = byref(self.struct), point_at(as_carray(contexts)), len(contexts)
        check_memory(self.kernels.bound_rows(*arguments, point_at(estimates), point_at(bounds)), WORK)
        return estimates, bounds


def find_dtype(name: str) -> npt.DTypeLike:
    """The dtype of one of `ARRAY_FIELDS`."""
    return {"four_bits": np.uint8, "rows": np.uint8, "change": np.uint16}.get(name, np.float32)


def copy_lines(weights: Bytes) -> Bytes:
    """A copy of weights that every row reads: in large pages it is read a fifth faster than where it is mapped."""
    lines = allocate_lines(weights.shape)
    lines[...] = weights
    return lines
