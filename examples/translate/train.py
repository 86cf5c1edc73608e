"""Train a small translator on parallel text; a run that was stopped goes on where it was.

  python -m examples.translate.train --source train.en --target train.ja --out build/translate [--threads 2]

Writes checkpoint.pt while it runs, and at the end Marian's files: model.npz and both vocabularies.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from shortlist_exporter.commands.progress import progress_bar
from torch import Tensor
from torch.nn import functional

from .corpus import Pairs, Vocabulary, encode_pairs, make_batches, pad_rows, read_lines
from .model import Shape, Transformer

CHECKPOINT = "checkpoint.pt"
BETAS = (0.9, 0.98)
MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True)
class Plan:
    """How long and how fast to train.

    rows: pairs in a batch. rate: the highest, after `warm_up` steps, or a quarter of fewer than four times as many; it
    falls to zero at the last step.
    """

    epochs: int = 9
    rows: int = 128
    rate: float = 1e-3
    warm_up: int = 800
    checkpoint_steps: int = 200
    seed: int = 0

    def choose_rate(self, done: int, total: int) -> float:
        """The rate of the step after `done` of `total` steps."""
        warm_up = min(self.warm_up, max(1, total // 4))
        return self.rate * min((done + 1) / warm_up, (total - done) / max(1, total - warm_up))


class Trainer:
    """A model, its optimiser, and how far it has come: `steps` in all."""

    def __init__(self, shape: Shape, plan: Plan, folder: Path) -> None:
        """Begin, or go on from the checkpoint in `folder`; raises ValueError where that is of another model or plan."""
        torch.manual_seed(plan.seed)
        self.plan, self.folder, self.steps = plan, folder, 0
        self.model = Transformer(shape)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=plan.rate, betas=BETAS, fused=True)
        self.description = {"shape": asdict(shape), "plan": asdict(plan)}
        if (folder / CHECKPOINT).is_file():
            self.resume()

    def resume(self) -> None:
        """Take everything from the checkpoint."""
        checkpoint = torch.load(self.folder / CHECKPOINT, weights_only=True)
        if checkpoint["description"] != self.description:
            raise ValueError(f"{self.folder} holds a checkpoint of another model or plan: choose another folder")
        self.model.load_state_dict(checkpoint["model"])
        self.optimiser.load_state_dict(checkpoint["optimiser"])
        self.steps = checkpoint["steps"]
        torch.set_rng_state(checkpoint["random"])

    def save(self) -> None:
        """Write the checkpoint: whole, or not at all."""
        content: dict[str, Any] = {
            "description": self.description,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "steps": self.steps,
            "random": torch.get_rng_state(),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"{CHECKPOINT}.part"
        torch.save(content, part)
        os.replace(part, self.folder / CHECKPOINT)

    def list_batches(self, pairs: Pairs) -> Iterator[list[int]]:
        """The batches that are left, of all epochs."""
        done = self.steps
        for epoch in range(self.plan.epochs):
            for batch in make_batches(pairs, self.plan.rows, self.plan.seed + epoch):
                if done:
                    done -= 1
                else:
                    yield batch

    def train(self, pairs: Pairs, steps: int | None = None) -> None:
        """Train to the end, or for so many steps; writes checkpoints on the way and at the end."""
        total = self.count_steps(pairs)
        stop = total if steps is None else min(total, self.steps + steps)
        start = time.monotonic()
        with progress_bar("training") as report:
            for batch in self.list_batches(pairs):
                if self.steps >= stop:
                    break
                loss = self.step(pairs, batch)
                report(f"training, loss {loss:.3f}, {time.monotonic() - start:,.0f} s", self.steps, total)
                if self.steps % self.plan.checkpoint_steps == 0:
                    self.save()
        self.save()

    def count_steps(self, pairs: Pairs) -> int:
        """The steps of all epochs."""
        return self.plan.epochs * -(-len(pairs) // self.plan.rows)

    def step(self, pairs: Pairs, batch: list[int]) -> float:
        """One step; returns the loss a word, nats."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.plan.choose_rate(self.steps, self.count_steps(pairs))
        self.steps += 1
        self.model.train()
        loss = self.measure_loss(pairs, batch)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRADIENT_NORM)
        self.optimiser.step()
        return loss.item()

    def measure_loss(self, pairs: Pairs, batch: list[int]) -> Tensor:
        """The cross-entropy a word of the pairs at these places."""
        sources, mask = pad_rows([pairs.sources[place] for place in batch])
        targets, real = pad_rows([pairs.targets[place] for place in batch])
        contexts = self.model.decode(self.model.encode(sources, mask), mask, targets)
        logits = self.model.score(contexts[real])
        return functional.cross_entropy(logits, targets[real])


def parse_arguments() -> argparse.Namespace:
    """The arguments: files, and how long to train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="tokenised sentences, one a line")
    parser.add_argument("--target", type=Path, required=True, help="their translations")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint and of the model")
    parser.add_argument("--epochs", type=int, default=Plan.epochs)
    parser.add_argument("--least", type=int, default=1, help="words that occur less often are unknown (default: 1)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def train_files(args: argparse.Namespace) -> None:
    """Train, write Marian's files; raises ValueError and OSError."""
    if min(args.epochs, args.threads) < 1:
        raise ValueError("--epochs and --threads are numbers from 1 on")
    torch.set_num_threads(args.threads)
    sources, targets = read_lines(args.source), read_lines(args.target)
    vocabularies = Vocabulary.count(sources, args.least), Vocabulary.count(targets, args.least)
    pairs = encode_pairs(sources, targets, vocabularies)
    shape = Shape(*(len(vocabulary.words) for vocabulary in vocabularies))
    trainer = Trainer(shape, Plan(epochs=args.epochs), args.out)
    trainer.train(pairs)
    trainer.model.save_marian(args.out / "model.npz")
    for name, vocabulary in zip(("source", "target"), vocabularies, strict=True):
        vocabulary.save(args.out / f"vocab.{name}.yml")


def main() -> None:
    """Read the arguments and train; what is wrong with them or the files is one line."""
    try:
        train_files(parse_arguments())
    except (OSError, ValueError) as error:
        sys.exit(f"examples.translate.train: {error}")


if __name__ == "__main__":
    main()
