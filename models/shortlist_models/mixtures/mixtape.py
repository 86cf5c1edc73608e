"""Mixtape: one softmax over logits that are themselves mixtures, with priors of their own for each frequent class.

Yang, Luong, Salakhutdinov and Le, "Mixtape: Breaking the Softmax Bottleneck Efficiently", NeurIPS 2019. With the
context c, its vector g and a class x of weight w_x and bias b_x:

    p(x | c) = exp(z_x) / sum of exp(z),  z_x = sum over k of pi_(x,k) h_k . w_x + b_x     (2)
    h_k = tanh(H_k g)                                                                     (3)
    l_(x,i) = v_x . tanh(U_i g) + u_i . g + b_(x,i), the gates' logits of a frequent class   (4)
    l_i = u_i . g + b_i, those that all rare classes share                                (section 3.3)

and pi from l by a tree of sigmoids, as `gates` has it (5, 6). Sharing makes the rare classes one ordinary softmax layer
over the vector sum over k of pi_k h_k; a share of .1 of the classes is frequent in the paper's language models.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from shortlist_models.adaptive.softmax import rank_targets, validate_order

from .gates import check_components, count_gates, mix
from .loss import compute_split_cross_entropy

FREQUENT_SHARE = 0.1  # of the classes have gates of their own


class Mixtape(nn.Module):
    """A drop-in for a linear layer and cross-entropy: contexts [B, d] and targets [B] to a loss.

    Parameters are by position, the most frequent class first. order: [V] int64, the class at each position; by default
    positions are the ids. ranks: [V] int64, the position of each class.
    """

    order: Tensor
    ranks: Tensor

    def __init__(
        self,
        dim: int,
        classes: int,
        components: int = 4,
        frequent: int | None = None,
        gate_width: int = 32,
        order: Tensor | None = None,
        *,
        tree: bool = True,
        gate_noise: float = 0.0,
    ) -> None:
        """dim: d. frequent: S, classes with gates of their own; a tenth of all by default, V for no sharing.

        gate_width: of v_x. tree: sigmoids in a tree, else a softmax over K logits. gate_noise: standard deviation of
        what is added to the gates' logits in training. Raises ValueError.
        """
        super().__init__()
        check_components(components, tree=tree)
        frequent = max(1, round(FREQUENT_SHARE * classes)) if frequent is None else frequent
        check_frequent(frequent, classes)
        self.dim, self.classes, self.components, self.frequent = dim, classes, components, frequent
        self.gate_width, self.tree, self.gate_noise = gate_width, tree, gate_noise
        gates = count_gates(components, tree=tree)
        layer = nn.Linear(dim, classes)
        self.weight, self.bias = layer.weight, layer.bias
        self.hidden = nn.Linear(dim, components * dim)
        self.gate_hidden = nn.Linear(dim, gates * gate_width)
        self.shared_gate = nn.Linear(dim, gates)
        self.gate_weight = nn.Parameter(torch.randn(frequent, gate_width) / gate_width**0.5)
        self.gate_bias = nn.Parameter(torch.zeros(gates, frequent))
        self.register_buffer("order", validate_order(order, classes))
        self.register_buffer("ranks", self.order.argsort())

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> Mixtape:
        """Make a module from its state dict, with all sizes read off the shapes; raises ValueError."""
        check_state(state)
        (classes, dim), (frequent, gate_width) = state["weight"].shape, state["gate_weight"].shape
        components, gates = len(state["hidden.weight"]) // dim, len(state["shared_gate.weight"])
        module = cls(
            dim,
            classes,
            components,
            frequent,
            gate_width,
            state.get("order"),
            tree=gates == count_gates(components, tree=True),
        )
        try:
            module.load_state_dict({**state, "order": module.order, "ranks": module.ranks})
        except RuntimeError as error:
            raise ValueError(
                f"the tensors of a Mixtape do not fit each other ({str(error).splitlines()[-1].strip()})"
            ) from None
        return module.eval()

    def extra_repr(self) -> str:
        """What no shape tells."""
        return f"gate_noise={self.gate_noise:g}" if self.gate_noise else ""

    def compute_components(self, contexts: Tensor) -> Tensor:
        """h_k, [B, d] -> [B, K, d] (3)."""
        vectors: Tensor = self.hidden(contexts).tanh()
        return vectors.view(-1, self.components, self.dim)

    def compute_gates(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Gate logits [B, G, S] of frequent classes (4) and [B, G, 1] of all others; noise is added in training."""
        shared = self.shared_gate(contexts)[:, :, None]
        hidden = self.gate_hidden(contexts).tanh().view(-1, shared.shape[1], self.gate_width)
        each = (hidden @ self.gate_weight.T).add_(shared).add_(self.gate_bias)
        if self.training and self.gate_noise:
            each = each + self.gate_noise * torch.randn_like(each)
            shared = shared + self.gate_noise * torch.randn_like(shared)
        return each, shared

    def compute_mean(self, components: Tensor, shared: Tensor) -> Tensor:
        """The vector [B, d] that rare classes are scored by, from h_k [B, K, d] and their gates' logits [B, G, 1]."""
        return mix(components, shared, tree=self.tree)

    def compute_parts(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts [B, d] -> logits of the frequent classes [B, S] and of the rare ones [B, V - S] (2)."""
        sizes = [self.frequent, self.classes - self.frequent]
        weights, biases = torch.split(self.weight, sizes), torch.split(self.bias, sizes)
        components = self.compute_components(contexts)
        each, shared = self.compute_gates(contexts)
        frequent = mix(components @ weights[0].T, each, tree=self.tree) + biases[0]
        return frequent, torch.addmm(biases[1], self.compute_mean(components, shared), weights[1].T)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of `targets` [B] int64, nats; raises ValueError for targets that are no class.

        Under autocast the two parts differ in type: both take the wider one.
        """
        frequent, rare = self.compute_parts(contexts)
        dtype = torch.promote_types(frequent.dtype, rare.dtype)
        return compute_split_cross_entropy(frequent.to(dtype), rare.to(dtype), rank_targets(self.ranks, targets))

    def log_prob(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> log-probabilities [B, V] by class id, natural logarithms."""
        return torch.cat(self.compute_parts(contexts), dim=1).log_softmax(dim=1)[:, self.ranks]

    def count_multiply_adds(self) -> int:
        """Of one context, all components."""
        frequent = self.frequent * (self.components * self.dim + len(self.gate_bias) * self.gate_width)
        layers = self.hidden, self.gate_hidden, self.shared_gate
        return frequent + (self.classes - self.frequent) * self.dim + sum(layer.weight.numel() for layer in layers)


def check_frequent(frequent: int, classes: int) -> None:
    """Raise ValueError unless 1 to V classes are frequent."""
    if not 1 <= frequent <= classes:
        raise ValueError(f"frequent={frequent} must be from 1 to the {classes} classes")


def check_state(state: Mapping[str, Tensor]) -> None:
    """Raise ValueError where a state dict lacks the matrices that say its sizes."""
    names = "weight", "hidden.weight", "shared_gate.weight", "gate_weight"
    if any(name not in state or state[name].ndim != 2 for name in names):
        raise ValueError(f"a Mixtape has matrices {', '.join(names)}: save the whole state dict")
    if len(state["hidden.weight"]) % state["weight"].shape[1]:
        raise ValueError("hidden.weight of a Mixtape has d rows for each component, d as weight [V, d] has it")
