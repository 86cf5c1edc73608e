"""How good recommendations are: of the item that a user took next, and of the served ones beside exact ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shortlist

DEPTHS = (10, 20, 100)
ROWS = 128  # users of a request


@dataclass(frozen=True)
class Figures:
    """ndcg: NDCG@10 of the item that came next. hits: recall@k of it, by k. agreement: recall@k of the exact k best."""

    ndcg: float
    hits: dict[int, float]
    agreement: dict[int, float]


def recommend(
    client: shortlist.Client, model: str, users: np.ndarray, seen: Sequence[Sequence[str]], k: int, *, exact: bool
) -> np.ndarray:
    """Names [n, k] of the k best items for users [n, d] that are not among those seen, best first; None pads."""
    answers = []
    for start in range(0, len(users), ROWS):
        part = slice(start, start + ROWS)
        ban = [list(names) for names in seen[part]]
        names = client.topk(model, users[part], k, ban=ban, exact=exact, names=True).names
        assert names is not None
        answers.append(names)
    return np.concatenate(answers)


def measure(served: np.ndarray, exact: np.ndarray, targets: Sequence[str], depths: Sequence[int] = DEPTHS) -> Figures:
    """Figures of served names [n, k] beside exact ones [n, k]; targets: [n], what each user took next."""
    hits = served == np.array(targets, dtype=object)[:, None]
    gains = hits[:, :10] / np.log2(np.arange(2, 2 + hits[:, :10].shape[1]))
    return Figures(
        ndcg=float(gains.sum(axis=1).mean()),
        hits={k: float(hits[:, :k].any(axis=1).mean()) for k in depths},
        agreement={k: measure_agreement(served[:, :k], exact[:, :k]) for k in depths},
    )


def measure_agreement(served: np.ndarray, exact: np.ndarray) -> float:
    """The mean share of the exact names [n, k] that were served."""
    shares = [len(set(row) & set(best)) / len(best) for row, best in zip(served, exact, strict=True)]
    return float(np.mean(shares))
