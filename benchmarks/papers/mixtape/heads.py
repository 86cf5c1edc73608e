"""Heads of Mixtape's page on a frozen body: trained in the same way on the same contexts, kept in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from shortlist_models.adaptive.softmax import order_by_frequency
from shortlist_models.adaptive.training import TrainOptions, train_head
from shortlist_models.mixtures.mixtape import Mixtape
from shortlist_models.mixtures.mos import MixtureOfSoftmaxes
from shortlist_models.progress import Progress
from torch import Tensor, nn

HEAD_OPTIONS = TrainOptions(epochs=2, batch=256, learning_rate=0.003)
TRAINED_ROWS = 62_000  # contexts: a fifteenth of train
TESTED_ROWS = 20_000
CHUNK_ROWS = 256


class Softmax(nn.Module):
    """A linear layer with cross-entropy, in the form of the mixtures."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, classes)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Contexts [B, d], targets [B] -> mean negative log-likelihood, nats."""
        return nn.functional.cross_entropy(self.layer(contexts), targets)

    def log_prob(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> log-probabilities [B, V]."""
        logits: Tensor = self.layer(contexts)
        return logits.log_softmax(dim=1)


TrainedHead = Softmax | Mixtape | MixtureOfSoftmaxes
Make = Callable[[int, int, Tensor], TrainedHead]  # d, V, order

SOFTMAX, MOS, MIXTAPE = "softmax", "MoS, K = 4", "Mixtape, K = 4"
SMALL = "Mixtape, K = 4, a twentieth frequent"  # and gates of half the width
HEADS: dict[str, Make] = {
    SOFTMAX: lambda dim, classes, order: Softmax(dim, classes),
    MIXTAPE: lambda dim, classes, order: Mixtape(dim, classes, order=order),
    MOS: lambda dim, classes, order: MixtureOfSoftmaxes(dim, classes, 4),
}
ABLATIONS: dict[str, Make] = {
    "Mixtape, K = 1": lambda dim, classes, order: Mixtape(dim, classes, 1, order=order, tree=False),
    "Mixtape, K = 2": lambda dim, classes, order: Mixtape(dim, classes, 2, order=order),
    "Mixtape, K = 4, priors by a softmax": lambda dim, classes, order: Mixtape(dim, classes, order=order, tree=False),
    "Mixtape, K = 8": lambda dim, classes, order: Mixtape(dim, classes, 8, order=order),
    SMALL: lambda dim, classes, order: Mixtape(dim, classes, 4, classes // 20, 16, order),
    "Mixtape, K = 4, gates shared by all": lambda dim, classes, order: Mixtape(dim, classes, 4, 1, order=order),
    "Mixtape, K = 4, no gates shared": lambda dim, classes, order: Mixtape(dim, classes, 4, classes, order=order),
}


@dataclass(frozen=True)
class Quality:
    """Test perplexity and top-1 accuracy, and the number of parameters."""

    perplexity: float
    accuracy: float
    parameters: int


def train_or_load(
    name: str, contexts: Tensor, targets: Tensor, classes: int, cache: Path, report: Progress
) -> TrainedHead:
    """The head `name` after training on the first `TRAINED_ROWS` of contexts [n, d]; from the cache if it is there."""
    contexts, targets, options = contexts[:TRAINED_ROWS], targets[:TRAINED_ROWS], HEAD_OPTIONS
    torch.manual_seed(options.seed)
    make = (HEADS | ABLATIONS)[name]
    module = make(contexts.shape[1], classes, order_by_frequency(targets, classes))
    stem = f"mixture-{name.replace(', ', '-').replace(' ', '')}-{len(contexts)}-{options.epochs}-{options.batch}"
    path, state = cache / f"{stem}.pt", cache / f"{stem}.state.pt"
    if not path.is_file():
        stage: Progress = lambda _, done, total: report(f"training {name}", done, total)  # noqa: E731
        train_head(module, module, contexts, targets, options, stage, state)
        torch.save(module.state_dict(), path)
        state.unlink()
    module.load_state_dict(torch.load(path, weights_only=True))
    return module.eval()


def measure_quality(head: TrainedHead, contexts: Tensor, targets: Tensor) -> Quality:
    """Perplexity and accuracy on the first `TESTED_ROWS` of contexts [n, d] and targets [n]."""
    hits, nats, rows = 0, 0.0, min(TESTED_ROWS, len(targets))
    with torch.inference_mode():
        for some, gold in zip(*(torch.split(part[:rows], CHUNK_ROWS) for part in (contexts, targets)), strict=True):
            logprobs = head.log_prob(some)
            hits += int((logprobs.argmax(dim=1) == gold).sum())
            nats -= float(logprobs.gather(1, gold[:, None]).double().sum())
    return Quality(math.exp(nats / rows), hits / rows, sum(map(Tensor.numel, head.parameters())))
