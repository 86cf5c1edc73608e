"""Training of a body together with its head: a small LSTM on Penn Treebank, softmax beside mixtures, three seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from shortlist_models.mixtures.mixtape import Mixtape
from shortlist_models.mixtures.mos import MixtureOfSoftmaxes
from shortlist_models.progress import Progress
from torch import Tensor, nn

from .heads import Softmax

VOCABULARY = 2_000  # the most frequent words, the first of them all others
TRAIN_WORDS = 300_000
STREAMS, STEP_WORDS = 20, 35
EPOCHS = 6
LEARNING_RATE = 0.003
DIM, SOFTMAX_DIM = 64, 76  # the softmax's is wider, for as many parameters
NARROW_DIM, NARROW_SOFTMAX_DIM = 24, 29
DROPOUT = 0.2
SEEDS = (0, 1, 2)
MAX_GRADIENT_NORM = 0.25 * STREAMS

Head = Softmax | Mixtape | MixtureOfSoftmaxes
CONTENDERS: dict[str, tuple[int, Callable[[int], Head]]] = {  # d of the body, its head
    "softmax": (SOFTMAX_DIM, lambda dim: Softmax(dim, VOCABULARY)),
    "Mixtape, K = 4": (DIM, lambda dim: Mixtape(dim, VOCABULARY, frequent=VOCABULARY // 10, gate_noise=0.1)),
    "softmax, narrow": (NARROW_SOFTMAX_DIM, lambda dim: Softmax(dim, VOCABULARY)),
    "Mixtape, K = 4, narrow": (NARROW_DIM, lambda dim: Mixtape(dim, VOCABULARY, frequent=VOCABULARY // 10)),
    "MoS, K = 4": (DIM, lambda dim: MixtureOfSoftmaxes(dim, VOCABULARY, 4)),
}


@dataclass(frozen=True)
class JointRun:
    """Perplexities of the epoch that is best on valid, and the number of parameters of body and head."""

    valid: float
    test: float
    epoch: int
    parameters: int


class Language(nn.Module):
    """An LSTM of one layer and a head: a caller's own module, whose loss is the head's."""

    def __init__(self, dim: int, head: Head) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, DIM)
        self.body = nn.LSTM(DIM, dim)
        self.drop = nn.Dropout(DROPOUT)
        self.head = head

    def forward(
        self, words: Tensor, targets: Tensor, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Words and targets [T, B] with the state before -> the mean loss, and the state after, without gradients."""
        output, (hidden, cell) = self.body(self.drop(self.words(words)), state)
        loss = self.head(self.drop(output).flatten(0, 1), targets.flatten())
        return loss, (hidden.detach(), cell.detach())


def load_words(folder: Path, split: str, known: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The words of a split as ids of the small vocabulary [n], and the known words by rank."""
    words = torch.from_numpy(np.load(folder / f"{split}.npy")[:TRAIN_WORDS].astype(np.int64))
    if known is None:
        known = torch.bincount(words).argsort(descending=True, stable=True)[: VOCABULARY - 1]
    places = torch.zeros(int(words.max()) + int(known.max()) + 1, dtype=torch.int64)
    places[known] = torch.arange(1, VOCABULARY)
    return places[words], known


def make_streams(words: Tensor) -> Tensor:
    """[n] words -> [n / STREAMS, STREAMS], each stream a run of the text."""
    length = len(words) // STREAMS
    return words[: length * STREAMS].view(STREAMS, length).T.contiguous()


def run_epoch(model: Language, streams: Tensor, optimizer: torch.optim.Optimizer | None) -> float:
    """One pass over `streams` [n, B], with training where there is an optimizer; returns the perplexity."""
    state, nats, count = None, 0.0, 0
    model.train(optimizer is not None)
    with torch.set_grad_enabled(optimizer is not None):
        for start in range(0, len(streams) - 1, STEP_WORDS):
            targets = streams[start + 1 : start + 1 + STEP_WORDS]
            loss, state = model(streams[start : start + len(targets)], targets, state)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
                optimizer.step()
            nats, count = nats + float(loss.detach()) * targets.numel(), count + targets.numel()
    return math.exp(nats / count)


def train_jointly(name: str, seed: int, folder: Path, report: Progress) -> JointRun:
    """Train the contender `name` from random weights."""
    torch.manual_seed(seed)
    dim, make = CONTENDERS[name]
    model = Language(dim, make(dim))
    train, known = load_words(folder, "train")
    streams = {split: make_streams(load_words(folder, split, known)[0]) for split in ("valid", "test")}
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, EPOCHS - 1)
    best, parameters = JointRun(math.inf, math.inf, 0, 0), sum(map(Tensor.numel, model.parameters()))
    for epoch in range(1, EPOCHS + 1):
        run_epoch(model, make_streams(train), optimizer)
        schedule.step()
        valid = run_epoch(model, streams["valid"], None)
        if valid < best.valid:
            best = JointRun(valid, run_epoch(model, streams["test"], None), epoch, parameters)
        report(f"{name}, seed {seed}, valid {valid:.1f}", epoch, EPOCHS)
    return best


def train_or_load(name: str, seed: int, folder: Path, cache: Path, report: Progress) -> JointRun:
    """`train_jointly`, from the cache where it is there."""
    path = cache / f"joint-{name.replace(', ', '-').replace(' ', '')}-{seed}.json"
    if not path.is_file():
        path.write_text(json.dumps(asdict(train_jointly(name, seed, folder, report))), "utf-8")
    return JointRun(**json.loads(path.read_text("utf-8")))
