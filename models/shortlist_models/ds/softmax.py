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
7. Pruning: the text's, once the task loss is under a threshold (`training`), not the code's fixed epoch.
8. Mitosis: the text's, with Gaussian noise on the children's gates; "at least one copy of each class" is an option.

All experts lie end to end in one parameter, so that the lasso, the optimiser and pruning are one operation each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from shortlist_models.full import FullSoftmax

from .checks import check_parts, check_targets
from .compaction import add_required_rows, select_rows
from .gate import ExpertRows, group_by_expert, squared_variation

EVIDENCE_CHUNK_ROWS = 65_536
ROOT_EPSILON = 1e-8  # under the root, so that the lasso's gradient is finite at 0


@dataclass(frozen=True)
class DSOptions:
    """Coefficients of the losses, and what is pruned.

    lasso, expert_lasso, load: coefficients. gamma: rows of a smaller root mean square are pruned. expert_group: whether
    the expert lasso has one group an expert or one a class; see the module's points 2 and 7.

    keep_one: at least one copy of every class stays (the paper's unstarred rows). padded: how many classes are padding,
    which no loss counts; of `from_dense`.
    """

    lasso: float = 0.0
    expert_lasso: float = 0.0
    load: float = 10.0
    gamma: float = 0.01
    keep_one: bool = True
    expert_group: Literal["expert", "class"] = "expert"
    padded: int = 0


class Losses(NamedTuple):
    """The parts of the loss, each a scalar tensor, not yet multiplied with their coefficients."""

    task: Tensor
    lasso: Tensor
    expert_lasso: Tensor
    load: Tensor


class DSSoftmax(nn.Module):
    """weight: [N, d] and bias: [N] of all experts end to end. gate: [K, d]. ids: [N], ascending in each expert.

    offsets: [K + 1], where each expert begins. N is the sum of the experts' sizes |v_k|.
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
        """ids: each expert's class ids, ascending.

        Raises ValueError where an expert is empty, or there is only one class.
        """
        super().__init__()
        check_parts(weight, bias, gate, ids, classes)
        self.options = options or DSOptions()
        self.classes = classes
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)
        self.gate = nn.Parameter(gate)
        self.register_buffer("ids", torch.cat(ids))
        sizes = torch.tensor([0, *(len(expert_ids) for expert_ids in ids)])
        self.register_buffer("offsets", sizes.cumsum(0))

    @classmethod
    def from_dense(cls, dense: FullSoftmax, options: DSOptions | None = None) -> DSSoftmax:
        """One expert with every class that is not padding, equal to the dense softmax; `mitosis.clone` makes more.

        A soft-cap is left out: the experts' logits have none.
        """
        ids = torch.arange(len(dense.weight))
        if dense.padding is not None:
            ids = ids[dense.padding == 0]
        bias = dense.weight.new_zeros(len(dense.weight)) if dense.bias is None else dense.bias
        weight = dense.weight[ids] * dense.logit_scale
        gate = dense.weight.new_zeros(1, dense.weight.shape[1])
        options = replace(options or DSOptions(), padded=len(dense.weight) - len(ids))
        return cls(weight, bias[ids] * dense.logit_scale, gate, [ids], len(dense.weight), options)

    @classmethod
    def from_state(cls, state: dict[str, Tensor], classes: int, options: DSOptions | None = None) -> DSSoftmax:
        """Make a module of the sizes in a state dict; raises ValueError where its tensors do not fit each other."""
        offsets = state["offsets"].tolist()
        ids = list(torch.split(state["ids"], [b - a for a, b in itertools.pairwise(offsets)]))
        return cls(
            state["weight"].clone(), state["bias"].clone(), state["gate"].clone(), ids, classes, options
        )  # fmt: skip

    @property
    def sizes(self) -> list[int]:
        """|v_k|, how many classes each expert has."""
        sizes: list[int] = self.offsets.diff().tolist()
        return sizes

    @property
    def experts(self) -> int:
        return len(self.gate)

    @property
    def sets(self) -> list[Tensor]:
        """Each expert's class ids, ascending."""
        return list(torch.split(self.ids, self.sizes))

    def gates(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> gate values [B, K] of Equation 1, normalised over all experts."""
        return (contexts @ self.gate.T).softmax(dim=1)

    def route(self, contexts: Tensor) -> Iterator[ExpertRows]:
        """Group the rows of a batch by the expert that the gate picks; experts without rows are left out."""
        value, expert_of_row = self.gates(contexts).max(dim=1)
        yield from group_by_expert(value, expert_of_row, self.experts)

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
        """The parts of `forward`'s loss, for the same arguments."""
        check_targets(targets, len(contexts), self.classes)
        value, expert_of_row = self.gates(contexts).max(dim=1)
        weights, biases = torch.split(self.weight, self.sizes), torch.split(self.bias, self.sizes)
        total = contexts.new_zeros(())
        for part in group_by_expert(value, expert_of_row, self.experts):
            products = contexts[part.rows] @ weights[part.expert].T + biases[part.expert]
            total = total + self.sum_task_loss(products * part.value[:, None], targets[part.rows], part.expert)
        lasso, expert_lasso = self.sum_group_norms()
        sums = value.new_zeros(self.experts).index_add(0, expert_of_row, value)
        return Losses(total / max(1, len(contexts)), lasso, expert_lasso, squared_variation(sums))

    def sum_task_loss(self, logits: Tensor, targets: Tensor, expert: int) -> Tensor:
        """Sum of the negative log-likelihoods of one expert's rows, with the logit 0 for every class outside it.

        Padding has none.
        """
        expert_ids = self.sets[expert]
        log_z = logits.logsumexp(dim=1)
        outside = self.classes - self.options.padded - len(expert_ids)
        if outside > 0:
            log_z = torch.logaddexp(log_z, log_z.new_tensor(math.log(outside)))
        if targets.ndim == 2:
            return (targets.sum(dim=1) * log_z).sum() - (targets[:, expert_ids] * logits).sum()
        position = torch.searchsorted(expert_ids, targets).clamp(max=len(expert_ids) - 1)
        target_logits = logits.gather(1, position[:, None])[:, 0]
        return log_z.sum() - torch.where(expert_ids[position] == targets, target_logits, 0.0).sum()

    def row_norms(self) -> Tensor:
        """Root mean square [N] of each row with its bias."""
        square = torch.linalg.vector_norm(self.weight, dim=1) ** 2 + self.bias**2
        size: Tensor = (square / (self.weight.shape[1] + 1) + ROOT_EPSILON).sqrt()
        return size

    def sum_group_norms(self) -> tuple[Tensor, Tensor]:
        """Sums of the norms of two kinds of groups: rows, and experts (or classes over all experts)."""
        rows = self.row_norms()
        if self.options.expert_group == "class":
            groups = rows.new_zeros(self.classes).index_add(0, self.ids, rows**2) / self.experts
        else:
            groups = rows.new_zeros(self.experts).index_add(0, self.owners, rows**2)
        return rows.sum(), (groups + ROOT_EPSILON).sqrt().sum()

    def log_prob(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> log-probabilities [B, V], natural logarithms; -inf outside the chosen expert."""
        logprobs = contexts.new_full((len(contexts), self.classes), -torch.inf)
        weights, biases, sets = torch.split(self.weight, self.sizes), torch.split(self.bias, self.sizes), self.sets
        for rows, expert, value in self.route(contexts):
            logits = (contexts[rows] @ weights[expert].T + biases[expert]) * value[:, None]
            logprobs[rows[:, None], sets[expert]] = logits.log_softmax(dim=1)
        return logprobs

    @torch.no_grad()
    def prune(self, optimizer: torch.optim.Optimizer | None = None) -> int:
        """Drop rows of a norm under `gamma` for good, from the optimizer's state too; returns how many.

        Rows that `keep_rows` must keep stay whatever their norm.
        """
        rows = self.row_norms()
        return self.keep_rows(rows >= self.options.gamma, rows, optimizer)

    @torch.no_grad()
    def keep_rows(self, row_mask: Tensor, worth: Tensor, optimizer: torch.optim.Optimizer | None = None) -> int:
        """Drop the rows outside `row_mask` [N]; returns how many.

        With `keep_one` the copy of every class with the largest `worth` [N] stays, too; and so does every expert's row
        with the largest worth, since an expert without classes has no answer.
        """
        kept_rows = add_required_rows(
            row_mask, worth, self.ids, self.owners, self.classes, keep_one=self.options.keep_one
        )
        dropped_count = int((~kept_rows).sum())
        if dropped_count:
            sizes = torch.bincount(self.owners[kept_rows], minlength=self.experts)
            self.select_rows(kept_rows.nonzero()[:, 0], sizes, optimizer)
        return dropped_count

    @property
    def owners(self) -> Tensor:
        """The expert [N] of every row."""
        return torch.repeat_interleave(torch.arange(self.experts, device=self.ids.device), self.offsets.diff())

    @torch.no_grad()
    def count_evidence(self, contexts: Tensor, best_classes: Tensor) -> Tensor:
        """[K, V]: how many of an expert's contexts have each class among their best.

        contexts: [n, d]. best_classes: [n, m] ids.
        """
        counts = torch.zeros(self.experts * self.classes, device=self.ids.device)
        for part, ids in zip(
            torch.split(contexts, EVIDENCE_CHUNK_ROWS), torch.split(best_classes, EVIDENCE_CHUNK_ROWS), strict=True
        ):
            expert_of_row = (part @ self.gate.T).argmax(dim=1)
            counts += torch.bincount((expert_of_row[:, None] * self.classes + ids).reshape(-1), minlength=len(counts))
        return counts.reshape(self.experts, self.classes)

    def select_rows(self, rows: Tensor, sizes: Tensor, optimizer: torch.optim.Optimizer | None) -> None:
        """Keep these rows [m] of all experts, in this order; `sizes` [K] of them belong to each.

        A repeated row is cloned.
        """
        select_rows(self.weight, rows, optimizer)
        select_rows(self.bias, rows, optimizer)
        self.ids = self.ids[rows]
        self.offsets = nn.functional.pad(sizes.cumsum(0), (1, 0))

    @torch.no_grad()
    def topk(self, contexts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities [B, k], best first; -1 and -inf where the expert has fewer classes."""
        ids = torch.full((len(contexts), k), -1, device=contexts.device)
        logprobs = contexts.new_full((len(contexts), k), -torch.inf)
        weights, biases, sets = torch.split(self.weight, self.sizes), torch.split(self.bias, self.sizes), self.sets
        for rows, expert, value in self.route(contexts):
            expert_logprobs = ((contexts[rows] @ weights[expert].T + biases[expert]) * value[:, None]).log_softmax(
                dim=1
            )
            best = expert_logprobs.topk(min(k, expert_logprobs.shape[1]), dim=1)
            ids[rows, : best.indices.shape[1]] = sets[expert][best.indices]
            logprobs[rows, : best.indices.shape[1]] = best.values
        return ids, logprobs

    @torch.no_grad()
    def utilization(self, contexts: Tensor) -> Tensor:
        """The share [K] of `contexts` [n, d] that each expert gets."""
        expert_of_row = (contexts @ self.gate.T).argmax(dim=1)
        return torch.bincount(expert_of_row, minlength=self.experts) / max(1, len(contexts))

    def speedup(self, utilization: Tensor) -> float:
        """|V| / (sum_k u_k |v_k| + K): how many times fewer multiply-adds than a dense softmax."""
        candidates = float((utilization.double() @ self.offsets.diff().double()).item())
        return self.classes / (candidates + self.experts)
