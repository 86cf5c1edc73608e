"""By how much float32 logits of a layer, and sums of their exponentials, may be off: what proofs allow for.

A sum of d products, a bias, a factor and their roundings obey |Z_v - z_v| <= gamma |(w_v, b_v)| |(h, 1)|, gamma =
n u / (1 - n u), u = 2^-24, n = d + 4, in whatever order they are summed (Higham, Accuracy and Stability, 3.1),
Cauchy-Schwarz being applied to sum |w_vj h_j|. A soft-cap divides, takes tanh and multiplies: its slope is at most 1,
and tanh, ONNX Runtime's, numpy's or the loops', is off by less than `TANH_ERROR`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .results import FloatArray, IdArray

UNIT_ROUNDOFF = 2.0**-24  # of float32
TANH_ERROR = 1e-6  # of a float32 tanh, absolute
UNDERFLOW_ERROR = 1e-30  # absolute: more than all that underflows in float32 can be off by
ROUNDING_SPARE = 1 + 1e-5  # for the roundings of what bounds roundings
EXPONENTIAL_ERROR = 1e-5  # nats: what a difference to the largest logit and its exponential lose in float32
MAX_CONTEXT_NORM = 1e30  # norm of a context that float32 can surely work with


@dataclass(frozen=True)
class Rounding:
    """Of a logit: weight [V] float32 times a context's size, and floor. summed: of a sum of V exponentials, in nats."""

    weight: FloatArray
    floor: float
    summed: float

    @classmethod
    def of_layer(cls, norms: FloatArray, floor: float, dim: int, soft_cap: float | None) -> Rounding:
        """Of a layer with `norms` [V], |(w_v, b_v)| or more. floor: by how much estimates of logits are off besides."""
        gamma = (dim + 4) * UNIT_ROUNDOFF / (1 - (dim + 4) * UNIT_ROUNDOFF)
        return cls(
            norms * np.float32(gamma * ROUNDING_SPARE),
            ROUNDING_SPARE * (floor + UNDERFLOW_ERROR + 4 * TANH_ERROR * (soft_cap or 0.0)),
            norms.size * UNIT_ROUNDOFF + EXPONENTIAL_ERROR,
        )

    def measure_slack(self, context: FloatArray, ids: IdArray) -> FloatArray:
        """By how much float32 logits of `ids` [n] may be off for a `context` [d], [n]."""
        slack: FloatArray = self.weight[ids]
        slack *= np.float32(measure_size(context))
        slack += np.float32(self.floor)
        return slack


def measure_size(context: FloatArray) -> float:
    """A bound of the norm of (h, 1) for a context h [d]; infinite where float32 may not be able to work with it."""
    size = math.sqrt(np.vdot(context, context)) + 1
    return size if size < MAX_CONTEXT_NORM else math.inf
