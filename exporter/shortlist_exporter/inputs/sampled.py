"""Contexts for a layer that comes with few or none: sampled so that they point where its rows do, all of them.

Rows are put into clusters by their directions, and as many contexts are drawn from each cluster: what is rare in a
catalogue is covered as what is common. A context is the direction of one row and a share of that of another row of any
cluster, as a user is who likes more than one thing, with noise of the shape that the rows have. Its length is the rows'
own, or that of the contexts that there are, in the mean. What a head that was fitted on them does for real contexts,
only real contexts can tell.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from shortlist.core.arrays import normalize_rows
from shortlist.errors import BadInput
from shortlist_models.progress import Progress, quiet
from shortlist_models.rescored.groups import cluster_rows

from .formats.base import Array, Ids
from .sources import Contexts, Dense, check_pair

MIN_CONTEXTS_PER_DIM = 2  # fewer do not say in which directions contexts lie, and are complemented
SAMPLED_CONTEXTS = 8_000
CLUSTERED_ROWS = 1 << 16  # a sample of the rows, by which clusters are found
ROWS_PER_CLUSTER = 64
MAX_SAMPLED_DIM = 1 << 14  # a wider layer is a transposed one: noise of its shape would take gigabytes and hours
SECOND_SHARE = (0.0, 0.8)  # of the second row in a context, at random between
NOISE_SHARE = 0.4  # the length of the noise, where a row's direction has 1
GIVEN, SAMPLED = "given", "sampled"  # kinds of contexts in a manifest


class Coverage(NamedTuple):
    """Cosines of rows of a layer with the context nearest to each: of the median row, and of the worst in a hundred."""

    median: float
    worst: float


def complete_contexts(dense: Dense, given: Contexts | None, seed: int, progress: Progress = quiet) -> Contexts:
    """`given`, if there are enough or they have targets; else sampled ones, and those given as a kind of their own.

    Every second one of those given is among the rows that are held out. The note in what is returned says how many were
    sampled, and how near to the rows of the layer they are. Raises BadInput where those given do not fit the layer, and
    where no row of it has a direction.
    """
    if given is not None:
        check_pair(dense, given)
    if given is not None and (given.targets is not None or len(given.contexts) >= MIN_CONTEXTS_PER_DIM * dense.dim):
        return given
    few = np.empty((0, dense.dim), np.float32) if given is None else given.contexts
    progress("sampling contexts", 0, 1)
    sampled = sample_contexts(dense, SAMPLED_CONTEXTS, seed)
    if len(few):
        sampled *= np.linalg.norm(few, axis=1).mean() / np.linalg.norm(sampled, axis=1).mean()
    note = describe_sample(len(few), len(sampled), measure_coverage(dense, sampled, seed))
    if not len(few):
        return Contexts(sampled, notes=(note,))
    first, last = few[1::2], few[::2]
    is_given = np.repeat([True, False, True], [len(first), len(sampled), len(last)])
    return Contexts(
        np.concatenate([first, sampled, last]),
        documents=np.arange(len(is_given), dtype=np.int32),
        sha256="" if given is None else given.sha256,
        kinds={GIVEN: np.flatnonzero(is_given).tolist(), SAMPLED: np.flatnonzero(~is_given).tolist()},
        notes=(note,),
    )


def sample_contexts(dense: Dense, count: int, seed: int) -> Array:
    """Contexts [count, d] float32 in the directions of the layer's rows; raises BadInput where none has one."""
    if dense.dim > MAX_SAMPLED_DIM:
        raise BadInput(
            f"no contexts can be sampled for a weight of {dense.classes} rows and {dense.dim} columns: "
            "give the transposed weight, [V, d], or --contexts"
        )
    random = np.random.default_rng(seed)
    rows = find_directed_rows(dense)
    length = np.sqrt(np.mean(np.square(dense.weight[rows[:CLUSTERED_ROWS]], dtype=np.float64)) * dense.dim)
    some = np.sort(random.permutation(rows)[:CLUSTERED_ROWS])
    directions = normalize_rows(dense.weight[some])
    first = directions[draw_evenly(random, directions, count, seed)]
    second = directions[random.integers(len(directions), size=count)]
    contexts = first + random.uniform(*SECOND_SHARE, (count, 1)).astype(np.float32) * second
    contexts += NOISE_SHARE * draw_noise(random, directions, count)
    return np.ascontiguousarray(normalize_rows(contexts) * np.float32(length), np.float32)


def find_directed_rows(dense: Dense) -> Ids:
    """Ascending ids [m] of rows that are no padding and not 0 everywhere; raises BadInput where there is none."""
    directed = np.asarray(dense.weight.any(axis=1), np.bool_)
    directed[dense.padded] = False
    if not directed.any():
        raise BadInput("every row of the weight is 0, so no contexts can be sampled: give --contexts")
    return np.flatnonzero(directed)


def draw_evenly(random: np.random.Generator, directions: Array, count: int, seed: int) -> Ids:
    """Positions [count] in `directions` [m, d], as many of each cluster, in random order."""
    groups = cluster_rows(torch.from_numpy(directions), max(1, len(directions) // ROWS_PER_CLUSTER), seed)
    order, starts, sizes = groups.order.numpy(), groups.starts.numpy()[:-1], groups.sizes.numpy()
    cluster = random.permutation(count) % len(sizes)
    return np.asarray(order[starts[cluster] + random.integers(sizes[cluster])], np.int64)


def draw_noise(random: np.random.Generator, directions: Array, count: int) -> Array:
    """Noise [count, d] with the second moments of `directions` [m, d], of length 1."""
    values, vectors = np.linalg.eigh(directions.T @ directions / len(directions))
    spread = vectors * np.sqrt(np.maximum(values, 0))
    return normalize_rows(random.standard_normal((count, len(values)), np.float32) @ spread.T)


def normalize_layer(dense: Dense, contexts: Contexts | None) -> tuple[Dense, Contexts | None]:
    """Both with rows of length 1: their products are cosines. Raises BadInput where a bias or a cap changes them."""
    if dense.bias is not None or dense.soft_cap is not None:
        raise BadInput(
            "--cosine is of layers without a bias and without a soft-cap: "
            "leave it out, or the --like of a bundle that has it"
        )
    in_place = dense.weight if dense.weight.flags.writeable else None  # of millions of rows, a copy is large
    layer = replace(dense, weight=normalize_rows(dense.weight, in_place))
    return layer, contexts and normalize_contexts(contexts)


def normalize_contexts(contexts: Contexts) -> Contexts:
    """The contexts divided by their lengths."""
    return replace(contexts, contexts=normalize_rows(contexts.contexts))


def measure_coverage(dense: Dense, contexts: Array, seed: int) -> Coverage:
    """How near the nearest of `contexts` [n, d] is to rows of the layer, of a sample of them."""
    rows = np.random.default_rng(seed + 1).permutation(find_directed_rows(dense))[:4096]
    nearest = (normalize_rows(dense.weight[rows]) @ normalize_rows(contexts).T).max(axis=1)
    return Coverage(float(np.median(nearest)), float(np.quantile(nearest, 0.01)))


def describe_sample(given: int, sampled: int, coverage: Coverage) -> str:
    """The note about sampled contexts, a sentence."""
    few = f"{given} contexts are few, so {sampled:,} more" if given else f"no contexts were given, so {sampled:,}"
    return (
        f"{few} were sampled in the directions of the layer's rows: cosine with the nearest is {coverage.median:.2f} "
        f"for the median row and {coverage.worst:.2f} for one in a hundred; figures are of such contexts, "
        "give --contexts for those of yours"
    )
