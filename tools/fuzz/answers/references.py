"""What the answers of a head must be: logits in float64, how far float32 may be off them, which rows are equal."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from shortlist.core.results import FloatArray, IdArray
from shortlist.plans.common.base import map_chunks
from shortlist_exporter.graphs.gate.int8 import round_rows
from shortlist_exporter.inputs.sources import Dense
from shortlist_models.adaptive.dsoftmax import DSoftmax
from shortlist_models.adaptive.softmax import AdaptiveSoftmax
from shortlist_models.ds.softmax import DSSoftmax
from shortlist_models.mixtures.mixtape import Mixtape
from torch import nn

from .heads import Case
from .layers import Doubles

FLOAT_UNIT, DOUBLE_UNIT = 2.0**-24, 2.0**-53
TANH_ERROR = 4e-6  # of a soft-cap, relative to the cap
OWN_OPERATIONS = 32  # of a head's own softmaxes, beyond those of its products


@dataclass(frozen=True)
class Reference:
    """Of the n contexts of a case's pool.

    logits: [n, V], -inf for padding and for what has probability 0. slack: [n, V], by how much each may be off in
    float32; exact_slack: [n, V], in float64. labels: [n, V], the same number for classes of equal weight and bias.
    settled: [n], false where rounding may decide which part of the head answers. exact: whether sums have no rounding.
    """

    logits: Doubles
    slack: Doubles
    exact_slack: Doubles
    labels: IdArray
    settled: npt.NDArray[np.bool_]

    @property
    def logprobs(self) -> Doubles:
        """[n, V], of the softmax over the logits."""
        peak = self.logits.max(axis=1, keepdims=True)
        logprobs: Doubles = self.logits - peak - np.log(np.exp(self.logits - peak).sum(axis=1, keepdims=True))
        return logprobs


def make_reference(case: Case) -> Reference:
    """The reference of a case's pool: of the dense layer, or of the head's own distribution."""
    pool = case.layer.pool
    if case.module is None:
        return compute_dense(case.layer.dense, pool, case.layer.whole)
    if isinstance(case.module, Mixtape):
        return describe_mixture(case.module, pool)
    exact = case.base.exact
    assert exact is not None
    logits = np.concatenate(map_chunks(exact.max_rows(), pool, lambda rows, _: exact.compute_distribution(rows)))
    if isinstance(case.module, DSSoftmax):
        module = round_rows(case.module) if case.form == "ds int8" else case.module
        return describe_experts(module, pool, logits.astype(np.float64))
    return describe_sections(case.module, pool, logits.astype(np.float64))


def compute_dense(dense: Dense, contexts: FloatArray, whole: bool) -> Reference:
    """Brute force; equal rows get equal logits. whole: whether float32 has no rounding either."""
    bias = np.zeros(dense.classes, np.float32) if dense.bias is None else dense.bias
    rows = np.column_stack([dense.weight, bias]).astype(np.float64)
    distinct, labels = np.unique(rows, axis=0, return_inverse=True)
    longer = np.column_stack([contexts, np.ones(len(contexts))]).astype(np.float64)
    logits = ((longer @ distinct.T) * dense.logit_scale)[:, labels.ravel()]
    sizes = np.outer(np.linalg.norm(longer, axis=1), np.linalg.norm(rows, axis=1) * dense.logit_scale)
    slack, exact_slack = (bound_sums(sizes, dense.dim + 4, unit) for unit in (FLOAT_UNIT, DOUBLE_UNIT))
    if dense.soft_cap is not None:
        logits = dense.soft_cap * np.tanh(logits / dense.soft_cap)
        slack, exact_slack = slack + TANH_ERROR * dense.soft_cap, exact_slack + 8 * DOUBLE_UNIT * dense.soft_cap
    if whole:
        slack, exact_slack = np.zeros_like(slack), np.zeros_like(slack)
    logits[:, dense.padded] = -np.inf
    labels = np.broadcast_to(labels.ravel(), logits.shape)
    return Reference(logits, slack, exact_slack, labels, np.ones(len(contexts), bool))


def bound_sums(sizes: Doubles, operations: int, unit: float) -> Doubles:
    """By how much sums of so many `operations` may be off, in any order: gamma times products of norms."""
    return sizes * (operations * unit / (1 - operations * unit)) + 1e-30


def label_rows(*parts: npt.NDArray[np.float32]) -> IdArray:
    """[n]: the same number for equal rows of `parts`, each [n] or [n, m]."""
    labels: IdArray = np.unique(np.column_stack(parts) + 0.0, axis=0, return_inverse=True)[1]
    return labels.ravel()


def describe_experts(module: DSSoftmax, contexts: FloatArray, logits: Doubles) -> Reference:
    """The reference of a Doubly Sparse Softmax by its own `logits` [n, V]."""
    weight, bias, gate = (part.detach().numpy() for part in (module.weight, module.bias, module.gate))
    gates = contexts.astype(np.float64) @ gate.astype(np.float64).T
    experts, parts = gates.argmax(axis=1), np.split(module.ids.numpy(), module.offsets.numpy()[1:-1])
    labels = np.tile(np.arange(module.classes), (len(parts), 1)) + module.classes
    for expert, ids in enumerate(parts):
        rows = slice(*module.offsets.numpy()[expert : expert + 2])
        labels[expert, ids] = label_rows(weight[rows], bias[rows])
    size = np.linalg.norm(contexts.astype(np.float64), axis=1)
    gate_slack = bound_sums(
        size * np.linalg.norm(gate, axis=1).max(), module.weight.shape[1] + OWN_OPERATIONS, 2.0**-23
    )
    best_two = np.sort(gates, axis=1)[:, -2:]
    gap = np.diff(best_two, axis=1)[:, 0]
    largest = np.linalg.norm(np.column_stack([weight, bias]).astype(np.float64), axis=1).max()
    slack = bound_sums((size + 1) * largest, module.weight.shape[1] + OWN_OPERATIONS, FLOAT_UNIT)
    slack += (gate_slack + OWN_OPERATIONS * FLOAT_UNIT) * np.abs(np.where(np.isfinite(logits), logits, 0)).max(axis=1)
    wide = np.broadcast_to(slack[:, None], logits.shape)
    return Reference(
        logits, wide, wide, labels[experts], (size == 0) | (gap > 2 * gate_slack + OWN_OPERATIONS * FLOAT_UNIT)
    )


def describe_sections(module: nn.Module, contexts: FloatArray, logits: Doubles) -> Reference:
    """The reference of an adaptive or differentiated softmax by its own log-probabilities `logits` [n, V]."""
    assert isinstance(module, AdaptiveSoftmax | DSoftmax)
    labels, largest = label_tails(module) if isinstance(module, AdaptiveSoftmax) else label_buckets(module)
    size = np.linalg.norm(contexts.astype(np.float64), axis=1) + 1
    slack = 2 * bound_sums(size * largest, 2 * contexts.shape[1] + OWN_OPERATIONS, FLOAT_UNIT) + 1e-5
    wide = slack[:, None] + 4 * FLOAT_UNIT * np.abs(np.where(np.isfinite(logits), logits, 0))
    return Reference(logits, wide, wide, np.broadcast_to(labels, logits.shape), np.ones(len(contexts), bool))


def label_tails(module: AdaptiveSoftmax) -> tuple[IdArray, float]:
    """Labels [V] of classes, and the largest product of norms that a class is scored by."""
    weight, bias = module.head.weight.detach().numpy(), module.head.bias
    biases = np.zeros(len(weight), np.float32) if bias is None else bias.detach().numpy()
    sections, tails = module.sections(), [(a.numpy(), b.numpy()) for a, b in module.tail_layers()]
    labels = np.empty(module.n_classes, np.int64)
    first = len(sections[0])
    labels[sections[0].numpy()] = label_rows(weight[:first], biases[:first])
    largest = float(np.linalg.norm(np.column_stack([weight, biases]).astype(np.float64), axis=1).max())
    for number, (ids, (narrow, last)) in enumerate(zip(sections[1:], tails, strict=True), 1):
        labels[ids.numpy()] = label_rows(last) + number * module.n_classes
        norms = np.linalg.norm(last.astype(np.float64), axis=1)
        largest = max(largest, largest + float(norms.max() * np.linalg.norm(narrow)))
    return labels, largest


def label_buckets(module: DSoftmax) -> tuple[IdArray, float]:
    """Labels [V] of classes, and the largest product of norms that a class is scored by."""
    bias, order = module.bias.detach().numpy(), module.order.numpy()
    projection = 1.0 if module.projection is None else float(module.projection.weight.detach().norm())
    labels, largest = np.empty(len(order), np.int64), 0.0
    for number, (weight, rows) in enumerate(
        zip(module.weights, np.split(np.arange(len(order)), module.cutoffs[:-1]), strict=True)
    ):
        array = weight.detach().numpy()
        labels[order[rows]] = label_rows(array, bias[rows]) + number * len(order)
        norms = np.linalg.norm(array.astype(np.float64), axis=1)
        largest = max(largest, float(norms.max()) * projection + float(np.abs(bias[rows]).max()))
    return labels, largest


def describe_mixture(module: Mixtape, contexts: FloatArray) -> Reference:
    """The reference of a Mixtape, by torch in float64."""
    with torch.inference_mode():
        parts = deepcopy(module).double().compute_parts(torch.from_numpy(contexts).double())
        logits = torch.cat(parts, dim=1)[:, module.ranks].numpy()
    layers = module.hidden, module.gate_hidden, module.shared_gate
    inner = max(float(layer.weight.detach().norm(dim=1).max() + layer.bias.detach().abs().max()) for layer in layers)
    gates = 1 + float(module.gate_weight.detach().norm(dim=1).max()) * module.gate_width**0.5
    rows = torch.column_stack([module.weight, module.bias]).detach().double()
    size = np.linalg.norm(contexts.astype(np.float64), axis=1) + 1
    largest = float(rows.norm(dim=1).max()) * module.dim**0.5 * gates  # of a logit, components being at most 1
    slack = bound_sums(size * inner * largest, 2 * module.dim + OWN_OPERATIONS, FLOAT_UNIT) + 1e-5
    wide = slack[:, None] + 4 * FLOAT_UNIT * np.abs(logits)
    labels = np.broadcast_to(label_mixture(module), logits.shape)
    return Reference(logits, wide, wide, labels, np.ones(len(contexts), bool))


def label_mixture(module: Mixtape) -> IdArray:
    """Labels [V] of classes: frequent ones have gates of their own, rare ones share theirs."""
    weight, bias, order = (part.detach().numpy() for part in (module.weight, module.bias, module.order))
    labels = np.arange(module.classes) + module.classes
    labels[order[module.frequent :]] = label_rows(weight[module.frequent :], bias[module.frequent :])
    return labels
