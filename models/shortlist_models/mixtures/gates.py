"""Gates of a mixture: weights of K components from sigmoids in a binary tree, or from a softmax.

Yang, Luong, Salakhutdinov and Le, "Mixtape: Breaking the Softmax Bottleneck Efficiently", NeurIPS 2019, section 3.2:
K - 1 sigmoids decide at the inner nodes of a tree with K leaves. For K = 4, with g_i = sigmoid(l_i), the priors are
g_1 g_2, g_1 (1 - g_2), (1 - g_1) g_3 and (1 - g_1)(1 - g_3).
"""

from __future__ import annotations

import torch
from torch import Tensor


def check_components(components: int, *, tree: bool) -> None:
    """Raise ValueError unless there is a component at least, and a tree has a power of two of them, 2 at least."""
    if components < 1 + tree or (tree and components & (components - 1)):
        raise ValueError(
            f"components={components} must be a power of two, as 2 or 4: a tree of sigmoids has such leaves"
        )


def count_gates(components: int, *, tree: bool) -> int:
    """How many numbers decide on K components: K - 1 of a tree, K of a softmax."""
    return components - 1 if tree else components


def mix(values: Tensor, logits: Tensor, *, tree: bool) -> Tensor:
    """The mean over components of `values` [B, K, n], weighted by the priors of `logits` [B, G, n or 1]; [B, n].

    Equals the sum of prior times value, but with K - 1 interpolations, each of which is read once.
    """
    if not tree:
        return (logits.softmax(dim=1) * values).sum(dim=1)
    gates = logits.sigmoid()
    while values.shape[1] > 1:
        pairs = values.shape[1] // 2
        here = gates[:, pairs - 1 : 2 * pairs - 1].expand(-1, -1, values.shape[2])
        values = torch.lerp(values[:, 1::2], values[:, 0::2], here)
    return values[:, 0]
