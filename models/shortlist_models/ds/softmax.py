"""Doubly Sparse Softmax: a sparse gate picks one of K experts, each a softmax over its own few classes.

Liao, Chen, Lin, Wang and Bryant, "Doubly Sparse: Sparse Mixture of Sparse Experts for Efficient Softmax Inference",
2019 (arXiv 1901.10668), Equation 1: G = softmax(U h), k = argmax G, p(c | h) = softmax over v_k of G_k (W_c h + b_c).

Its authors' code differs from its text in eight places. What is done here, and why:

1. Class lasso: the code's root of the mean square, not the L2 norm, so that `gamma` means the same for every d.
2. Expert lasso: the text's formula, one group an expert; the code's, one group a class over all experts, is
   `expert_group="class"`.
3. Gate: normalised over all experts before the selection (text and code agree); the code's noisy gating, which the
   text does not have, is left out. The gate's value multiplies the logits.
4. Load: squared coefficient of variation of the batch's sums of sparse gates, coefficient 10 (text and code agree).
5. Pruned classes: in training each keeps the logit 0, as in the code: the loss stays finite for a target that the
   expert lost, and its gradient tells the gate to go elsewhere; a row is pruned at about 0, so that no loss jumps.
   In `log_prob`, and when served, they score -inf and the normaliser is the expert's own.
6. Masks: there are none. Experts are compacted: what is pruned has no memory, and nothing can revive it.
7. Pruning: the text's, once the task loss is under a threshold (`ds_training`), not the code's fixed epoch.
8. Mitosis: the text's, with Gaussian noise on the children's gates; "at least one copy of each class" is an option.

All experts lie end to end in one parameter, so that the lasso, the optimiser and pruning are one operation each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from shortlist_models.full import FullSoftmax

from .checks import check_parts, check_targets
from .compaction import keep_rows
from .gate import Routed, by_expert, variation

CHUNK = 65_536  # contexts routed at once
EPSILON = 1e-8  # under the root: the lasso's gradient is finite at 0


@dataclass(frozen=True)
class DSOptions:
    """lasso, expert_lasso, load: coefficients of the losses. gamma: rows of a smaller root mean square are pruned.

    keep_one: at least one copy of every class stays (the paper's unstarred rows).
    """

    lasso: float = 0.0
    expert_lasso: float = 0.0
    load: float = 10.0
    gamma: float = 0.01
    keep_one: bool = True
    expert_group: Literal["expert", "class"] = "expert"


class Losses(NamedTuple):
    """The parts of the loss, each a scalar; the coefficients are not in them."""

    task: Tensor
    lasso: Tensor
    expert_lasso: Tensor
    load: Tensor


class DSSoftmax(nn.Module):
    """weight: [N, d] and bias: [N] of all experts end to end. gate: [K, d]. ids: [N], ascending in each expert.

    sizes: |v_k| of each expert. N is the sum of them.
    """

    ids: Tensor
    offsets: Tensor

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        gate: Tensor,
        ids: list[Tensor],
        classes: int,
        options: DSOptions | None = None,
    ) -> None:
        """ids: of each expert, ascending. Raises ValueError where an expert is empty, or there is one class only."""
        super().__init__()
        check_parts(weight, bias, gate, ids, classes)
        self.options = options or DSOptions()
        self.classes = classes
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)
        self.gate = nn.Parameter(gate)
        self.register_buffer("ids", torch.cat(ids))
        sizes = torch.tensor([0, *(len(own) for own in ids)])
        self.register_buffer("offsets", sizes.cumsum(0))

    @classmethod
    def from_dense(cls, dense: FullSoftmax, options: DSOptions | None = None) -> DSSoftmax:
        """One expert with every class that is not padding: equals the dense softmax. `mitosis.clone` makes more.

        A soft-cap is left out: the experts' logits have none.
        """
        ids = torch.arange(len(dense.weight))
        if dense.padding is not None:
            ids = ids[dense.padding == 0]
        bias = dense.weight.new_zeros(len(dense.weight)) if dense.bias is None else dense.bias
        weight = dense.weight[ids] * dense.logit_scale
        gate = dense.weight.new_zeros(1, dense.weight.shape[1])
        return cls(weight, bias[ids] * dense.logit_scale, gate, [ids], len(dense.weight), options)

    @classmethod
    def from_state(cls, state: dict[str, Tensor], classes: int, options: DSOptions | None = None) -> DSSoftmax:
        """From a `state_dict` of whatever sizes; raises ValueError where its parts do not fit each other."""
        offsets = state["offsets"].tolist()
        ids = list(torch.split(state["ids"], [b - a for a, b in itertools.pairwise(offsets)]))
        return cls(
            state["weight"].clone(), state["bias"].clone(), state["gate"].clone(), ids, classes, options
        )  # fmt: skip

    @property
    def sizes(self) -> list[int]:
        """|v_k| of each expert."""
        sizes: list[int] = self.offsets.diff().tolist()
        return sizes

    @property
    def experts(self) -> int:
        """K."""
        return len(self.gate)

    @property
    def sets(self) -> list[Tensor]:
        """Ascending ids of each expert."""
        return list(torch.split(self.ids, self.sizes))

    def gates(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, K]: Equation 1, normalised over all experts."""
        return (contexts @ self.gate.T).softmax(dim=1)

    def routed(self, contexts: Tensor) -> Iterator[Routed]:
        """The batch's rows by expert; experts that get none are left out."""
        value, chosen = self.gates(contexts).max(dim=1)
        yield from by_expert(value, chosen, self.experts)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """The whole loss, in nats: mean over contexts [B, d] of the task's, and the regularisers.

        targets: [B] int64 classes, or [B, V] probabilities to distil. Raises ValueError for targets out of range.
        """
        parts, options = self.losses(contexts, targets), self.options
        return (
            parts.task
            + options.lasso * parts.lasso
            + options.expert_lasso * parts.expert_lasso
            + options.load * parts.load
        )

    def losses(self, contexts: Tensor, targets: Tensor) -> Losses:
        """See `forward`; its parts."""
        check_targets(targets, len(contexts), self.classes)
        value, chosen = self.gates(contexts).max(dim=1)
        weights, biases = torch.split(self.weight, self.sizes), torch.split(self.bias, self.sizes)
        total = contexts.new_zeros(())
        for part in by_expert(value, chosen, self.experts):
            products = contexts[part.rows] @ weights[part.expert].T + biases[part.expert]
            total = total + self.task(products * part.value[:, None], targets[part.rows], part.expert)
        lasso, expert_lasso = self.group_lassos()
        sums = value.new_zeros(self.experts).index_add(0, chosen, value)
        return Losses(total / max(1, len(contexts)), lasso, expert_lasso, variation(sums))

    def task(self, logits: Tensor, targets: Tensor, expert: int) -> Tensor:
        """Summed negative log-likelihood [] of one expert's rows, each class outside it with the logit 0."""
        own = self.sets[expert]
        log_z = logits.logsumexp(dim=1)
        if len(own) < self.classes:
            log_z = torch.logaddexp(log_z, log_z.new_tensor(math.log(self.classes - len(own))))
        if targets.ndim == 2:
            return (targets.sum(dim=1) * log_z).sum() - (targets[:, own] * logits).sum()
        position = torch.searchsorted(own, targets).clamp(max=len(own) - 1)
        wanted = logits.gather(1, position[:, None])[:, 0]
        return log_z.sum() - torch.where(own[position] == targets, wanted, 0.0).sum()

    def row_sizes(self) -> Tensor:
        """[N]: root mean square of each row with its bias."""
        square = torch.linalg.vector_norm(self.weight, dim=1) ** 2 + self.bias**2
        size: Tensor = (square / (self.weight.shape[1] + 1) + EPSILON).sqrt()
        return size

    def group_lassos(self) -> tuple[Tensor, Tensor]:
        """Sums over groups: rows, and experts (or classes over all experts)."""
        rows = self.row_sizes()
        if self.options.expert_group == "class":
            groups = rows.new_zeros(self.classes).index_add(0, self.ids, rows**2) / self.experts
        else:
            groups = rows.new_zeros(self.experts).index_add(0, self.owners, rows**2)
        return rows.sum(), (groups + EPSILON).sqrt().sum()

    def log_prob(self, contexts: Tensor) -> Tensor:
        """[B, d] -> [B, V] natural logarithms; -inf outside the chosen expert."""
        found = contexts.new_full((len(contexts), self.classes), -torch.inf)
        weights, biases, sets = torch.split(self.weight, self.sizes), torch.split(self.bias, self.sizes), self.sets
        for rows, expert, value in self.routed(contexts):
            logits = (contexts[rows] @ weights[expert].T + biases[expert]) * value[:, None]
            found[rows[:, None], sets[expert]] = logits.log_softmax(dim=1)
        return found

    @torch.no_grad()
    def prune(self, optimizer: torch.optim.Optimizer | None = None) -> int:
        """Drop rows under `gamma` for good, from the optimiser's state too; returns how many. See `keep`."""
        rows = self.row_sizes()
        return self.keep(rows >= self.options.gamma, rows, optimizer)

    @torch.no_grad()
    def keep(self, wanted: Tensor, worth: Tensor, optimizer: torch.optim.Optimizer | None = None) -> int:
        """Drop the rows that are not `wanted` [N]; returns how many.

        With `keep_one` the copy of every class that is `worth` [N] most stays; of every expert its worthiest row always
        does, since an empty softmax has no answer.
        """
        kept = least_kept(wanted, worth, self.ids, self.owners, self.classes, keep_one=self.options.keep_one)
        dropped = int((~kept).sum())
        if dropped:
            sizes = torch.bincount(self.owners[kept], minlength=self.experts)
            self.take(kept.nonzero()[:, 0], sizes, optimizer)
        return dropped

    @property
    def owners(self) -> Tensor:
        """[N]: the expert of every row."""
        return torch.repeat_interleave(torch.arange(self.experts, device=self.ids.device), self.offsets.diff())

    @torch.no_grad()
    def evidence(self, contexts: Tensor, wanted: Tensor) -> Tensor:
        """[K, V]: how many of the `contexts` [n, d] that an expert gets want each class, by `wanted` [n, m] ids."""
        counts = torch.zeros(self.experts * self.classes, device=self.ids.device)
        for part, ids in zip(torch.split(contexts, CHUNK), torch.split(wanted, CHUNK), strict=True):
            chosen = (part @ self.gate.T).argmax(dim=1)
            counts += torch.bincount((chosen[:, None] * self.classes + ids).reshape(-1), minlength=len(counts))
        return counts.reshape(self.experts, self.classes)

    def take(self, rows: Tensor, sizes: Tensor, optimizer: torch.optim.Optimizer | None) -> None:
        """Keep (or repeat) these rows of all experts' weights, so that `sizes` [K] of each are left."""
        keep_rows(self.weight, rows, optimizer)
        keep_rows(self.bias, rows, optimizer)
        self.ids = self.ids[rows]
        self.offsets = nn.functional.pad(sizes.cumsum(0), (1, 0))

    @torch.no_grad()
    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities [B, k], best first; -1 and -inf where the expert has fewer classes."""
        ids = torch.full((len(contexts), k), -1, device=contexts.device)
        logprobs = contexts.new_full((len(contexts), k), -torch.inf)
        weights, biases, sets = torch.split(self.weight, self.sizes), torch.split(self.bias, self.sizes), self.sets
        for rows, expert, value in self.routed(contexts):
            own = ((contexts[rows] @ weights[expert].T + biases[expert]) * value[:, None]).log_softmax(dim=1)
            best = own.topk(min(k, own.shape[1]), dim=1)
            ids[rows, : best.indices.shape[1]] = sets[expert][best.indices]
            logprobs[rows, : best.indices.shape[1]] = best.values
        return ids, logprobs

    @torch.no_grad()
    def utilization(self, contexts: Tensor) -> Tensor:
        """[K]: share of `contexts` [n, d] that each expert gets."""
        chosen = (contexts @ self.gate.T).argmax(dim=1)
        return torch.bincount(chosen, minlength=self.experts) / max(1, len(contexts))

    def speedup(self, utilization: Tensor) -> float:
        """|V| / (sum_k u_k |v_k| + K): how many times fewer multiply-adds than a dense softmax."""
        scored = float((utilization.double() @ self.offsets.diff().double()).item())
        return self.classes / (scored + self.experts)


def least_kept(wanted: Tensor, worth: Tensor, ids: Tensor, owners: Tensor, classes: int, *, keep_one: bool) -> Tensor:
    """`wanted` [N] and the rows that must stay: the worthiest of each expert; with `keep_one`, of each class too."""
    kept = wanted.clone()
    for groups, count in ((owners, int(owners.max()) + 1), *([(ids, classes)] if keep_one else [])):
        most = worth.new_zeros(count).scatter_reduce(0, groups, worth, "amax")
        kept |= first_of(worth == most[groups], groups, count)
    return kept


def first_of(wanted: Tensor, ids: Tensor, classes: int) -> Tensor:
    """[N] bool: of the `wanted` rows of each class (or other group `ids`) the first alone."""
    rows = wanted.nonzero()[:, 0]
    first = torch.full((classes,), len(ids), device=ids.device).scatter_reduce(0, ids[rows], rows, "amin")
    chosen = torch.zeros_like(wanted)
    chosen[first[first < len(ids)]] = True
    return chosen
