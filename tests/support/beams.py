"""Plain beam steps in float64, over every class: what the service is held against."""

from __future__ import annotations

from typing import Any

import numpy as np


def rank_plainly(keys: np.ndarray, k: int) -> list[int]:
    """Ids of the k largest keys [V] that are not -inf, equal ones by lower id."""
    order = sorted(range(len(keys)), key=lambda id: (-keys[id], id))
    return [id for id in order if keys[id] > -np.inf][:k]


def weigh_row(logprobs: np.ndarray, row: int, rows: int, options: dict[str, Any]) -> np.ndarray:
    """What each class [V] adds to the score of one row, -inf where it may not follow."""
    forced = options.get("forced")
    gains = logprobs.copy()
    if forced is not None and forced[row] >= 0:
        gains[np.arange(len(gains)) != forced[row]] = -np.inf
    else:
        for id, weight in pick(options.get("bias", {}), row).items():
            gains[id] += weight
        allowed = pick(options.get("allow"), row)
        if allowed is not None:
            gains[np.setdiff1d(np.arange(len(gains)), allowed)] = -np.inf
        gains[np.array(pick(options.get("ban", []), row), int)] = -np.inf
        if np.broadcast_to(options.get("lengths", 0), rows)[row] < options.get("min_length", 0):
            gains[list(options["eos"])] = -np.inf
    return gains / np.broadcast_to(options.get("temperature", 1.0), rows)[row]


def pick(values: Any, row: int) -> Any:
    """One row's list or bias, of one for all or one a row."""
    nested = isinstance(values, list) and values and isinstance(values[0], list | dict)
    return values[row] if nested else values


def step_plainly(
    logprobs: np.ndarray, scores: np.ndarray, finished: np.ndarray, beam: int, n: int, options: dict[str, Any]
) -> list[list[tuple[int, int, float, float]]]:
    """Of each group the n best (parent, id, score, log-probability), from log-probabilities [G * beam, V]."""
    groups = []
    for group in range(len(scores) // beam):
        candidates = []
        for parent in range(beam):
            row = group * beam + parent
            if scores[row] == -np.inf:
                continue
            if finished[row]:
                candidates.append((parent, -1, float(scores[row]), 0.0))
                continue
            totals = scores[row] + weigh_row(logprobs[row], row, len(scores), options)
            candidates += [
                (parent, id, float(totals[id]), float(logprobs[row, id])) for id in rank_plainly(totals, len(totals))
            ]
        groups.append(sorted(candidates, key=lambda each: (-each[2], each[0], each[1]))[:n])
    return groups


def assert_step(result: Any, expected: list[list[tuple[int, int, float, float]]], atol: float = 1e-5) -> None:
    """Hold a BeamStep against what `step_plainly` gives; neighbours whose scores are equal to `atol` may be swapped."""
    n = result.ids.shape[1]
    assert (result.parents.dtype, result.ids.dtype) == (np.int32, np.int64)
    assert (result.scores.dtype, result.logprobs.dtype) == (np.float64, np.float32)
    assert len(result.ids) == len(expected)
    for group, best in enumerate(expected):
        count = len(best)
        np.testing.assert_allclose(result.scores[group, :count], [each[2] for each in best], atol=atol)
        by_pair = {each[:2]: each[3] for each in best}
        pairs = list(zip(result.parents[group].tolist(), result.ids[group].tolist(), strict=True))[:count]
        cut = best[-1][2] if best else 0.0
        for place, pair in enumerate(pairs):
            if result.scores[group, place] > cut + atol:
                assert pair in by_pair
                assert abs(result.logprobs[group, place] - by_pair[pair]) < atol
        assert len(set(pairs)) == count
        assert (result.parents[group, count:] == -1).all()
        assert (result.ids[group, count:] == -1).all()
        assert (result.scores[group, count:] == -np.inf).all()
        assert n >= count
