"""Ground truth: float32 scores, their best checked in float64, computed once and stored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import load_file, save_file
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.inputs.sources import Dense

DEPTH = 10
MARGIN = 22  # classes below the depth that float64 may still lift into it
CHUNK = 64


@dataclass(frozen=True)
class Truth:
    """Distinct held-out contexts in random order, and their exact answers.

    contexts: [n, d] float32. ids: [n, DEPTH] int64, best first. targets: [n] int64 or None.
    """

    contexts: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64] | None = None


def truth_at(
    path: Path, dense: Dense, contexts: npt.NDArray[np.float32], targets: npt.NDArray[np.int64] | None
) -> Truth:
    """The stored truth at `path`, or that of the distinct rows of `contexts`, stored there."""
    if path.is_file():
        stored = load_file(path)
        return Truth(stored["contexts"], stored["ids"], stored.get("targets"))
    _, first = np.unique(contexts, axis=0, return_index=True)
    rows = np.random.default_rng(0).permutation(first)
    truth = Truth(contexts[rows], exact_ids(dense, contexts[rows]), None if targets is None else targets[rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value for name, value in vars(truth).items() if value is not None}, path)
    return truth


def exact_ids(dense: Dense, contexts: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """[n, DEPTH]: the best by float32, ordered by float64; equal scores by lower id."""
    module = dense.module
    depth = min(DEPTH, dense.classes - dense.padded.size)
    found = []
    with torch.inference_mode(), progress_bar("dense answers") as report:
        for start in range(0, len(contexts), CHUNK):
            chunk = torch.from_numpy(contexts[start : start + CHUNK])
            near = module.logits(chunk).topk(min(depth + MARGIN, dense.classes), dim=1).indices.sort(dim=1).values
            found.append(checked(dense, chunk, near, depth))
            report("dense answers", min(start + CHUNK, len(contexts)), len(contexts))
    return np.concatenate(found)


def checked(dense: Dense, contexts: torch.Tensor, near: torch.Tensor, depth: int) -> npt.NDArray[np.int64]:
    """The best `depth` of the ascending classes `near` [B, m] by float64 products (scale and cap keep the order)."""
    rows = torch.from_numpy(dense.weight)[near].double()
    scores = torch.einsum("bmd,bd->bm", rows, contexts.double())
    if dense.bias is not None:
        scores += torch.from_numpy(dense.bias)[near].double()
    scores[torch.isin(near, torch.from_numpy(dense.padded))] = -torch.inf
    order = torch.sort(-scores, dim=1, stable=True).indices[:, :depth]
    return near.gather(1, order).numpy()
