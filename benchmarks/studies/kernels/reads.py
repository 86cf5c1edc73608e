"""Bytes of weights that a proved exact answer reads, beside those of the dense layer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import FloatArray
from shortlist.head import Head
from shortlist.kernels.proofs import ANCHOR_CLASSES, REST_SHARE, CompiledProofs
from shortlist.plans.certified import CertifiedPlan

from .ratios import TIMED_K

WHOLE_TABLES = "four_bits", "change", "four_bit_scale", "constant", "error_directions", "level_directions"


def measure_reads(head: Head, contexts: FloatArray) -> float | None:
    """The share of dense's bytes that exact answers of `contexts` [B, d] read, one row at a time, in the mean.

    None for a head without compiled proofs. A row reads the basis and the 4 bits of all classes, the int8 rows of its
    candidates, and the float32 rows of those scored exactly.
    """
    plan = head.certified
    if not isinstance(plan, CertifiedPlan) or not isinstance(plan.proofs, CompiledProofs):
        return None
    proofs = plan.proofs
    whole = sum(proofs.tables[name].nbytes for name in WHOLE_TABLES)
    refined = count_candidates(proofs, contexts).mean() * proofs.tables["rows"].shape[1]
    result, _ = proofs.prove(contexts, TIMED_K, UNRESTRICTED)
    exact = float(result.scored.mean()) * proofs.dim * contexts.itemsize
    return float((whole + refined + exact) / (proofs.classes * proofs.dim * contexts.itemsize))


def count_candidates(proofs: CompiledProofs, contexts: FloatArray) -> npt.NDArray[np.int64]:
    """About how many classes of each of `contexts` [B, d] are looked at by int8, [B]; `proofs.h` says which."""
    scale = proofs.tables["four_bit_scale"][: proofs.classes].astype(np.float64)
    return np.array([count_reaching(*proofs.bound(context[None]), scale) for context in contexts])


def count_reaching(estimates: FloatArray, bounds: npt.NDArray[np.float64], scale: npt.NDArray[np.float64]) -> int:
    """The same of one context, by its estimates [1, 2, V] and bounds [1, 3]; scale: [V]."""
    coarse, (reach, _, deviation) = estimates[0, 0].astype(np.float64), bounds[0]
    upper = coarse + scale * reach
    anchor = np.sort(upper)[-min(ANCHOR_CLASSES, upper.size)]
    worst = min((deviation / reach) ** 2, (deviation * scale.max()) ** 2 / 2)
    cut = np.logaddexp.reduce(coarse) + np.log(REST_SHARE / worst)
    return int((upper >= min(cut, anchor)).sum())
