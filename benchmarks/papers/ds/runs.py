"""The trainings behind the page of Doubly Sparse Softmax: resumable, each leaves its head and its history."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from shortlist.core.results import IdArray
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_models import FullSoftmax
from shortlist_models.ds.options import Examples, TrainOptions
from shortlist_models.ds.softmax import DSOptions, DSSoftmax
from shortlist_models.ds.training import train
from shortlist_models.progress import Progress
from torch import Tensor

from benchmarks.datasets.ptb import find_base_model, load_layer, load_states

ALL_WORDS = 929_589  # of train, all
FOLDER, FULL_FOLDER = "ds-whole", "ds-full"  # where heads stay, below the text's cache
WATCHED_CONTEXTS = 5000  # contexts of valid that a round is judged by
LEARNING_RATES = (3e-5, 1e-4, 3e-4, 1e-3)  # the grid; the best by valid is reported
DEFAULT_RATE = 1e-4  # of heads that are trained at one rate alone
PAPER_EXPERTS = 64
FEWER_EXPERTS = (2, 4, 8, 16, 32)
MITOSIS = TrainOptions(
    experts=PAPER_EXPERTS, rounds=1, final_rounds=0, tuning_rounds=6, round_steps=60, lasso=1e-4, growth=1.2,
    evidence=True, learning_rate=1e-4, threshold=7.0,
)  # fmt: skip
FULL_MITOSIS = replace(MITOSIS, rounds=10, tuning_rounds=60)
# Nearly as many contexts as DS-64 sees (.26 of .32 epochs), as many of them with a falling rate.
DENSE_TRAINING = replace(MITOSIS, experts=1, rounds=0, final_rounds=2)
FULL_DENSE_TRAINING = replace(FULL_MITOSIS, experts=1, rounds=0, final_rounds=38)
# The paper's pruning alone: clones keep all rows of their parents, and lassos remove them, for longer stages.
LASSO_FOLDER = "ds-lassos"
LASSO_EXPERTS = (2, 8, PAPER_EXPERTS)
LASSO_MITOSIS = replace(
    MITOSIS, evidence=False, rounds=3, final_rounds=8, round_steps=75, lasso=2e-4, growth=1.15, tolerance=0.006,
    learning_rate=1e-3, tuning_rate=3e-4, ceiling=16.0,
)  # fmt: skip
TARGET, STARRED_TARGET = 17.0, 36.0  # FLOP speed-ups of 64 experts at which pruning ends


@dataclass(frozen=True)
class Text:
    """Penn Treebank as contexts: train to fit, valid to choose, test to report."""

    dense: Dense
    fit: Contexts
    valid: Contexts
    test: Contexts
    words: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def softmax(self) -> FullSoftmax:
        """The base model's output layer."""
        return self.dense.module


@dataclass(frozen=True)
class Head:
    """A trained head and the record of every round."""

    name: str
    module: DSSoftmax
    history: list[dict[str, Any]]
    peak_bytes: int

    @property
    def experts(self) -> int:
        """K; 1 for a dense softmax."""
        return self.module.experts

    @property
    def lacks_constraint(self) -> bool:
        """Whether classes may have lost every copy."""
        return "starred" in self.name

    @property
    def label(self) -> str:
        """The head's name as the paper has it, as in `DS-64*`."""
        return f"DS-{self.experts}{'*' if self.lacks_constraint else ''}"

    @property
    def rate(self) -> float:
        """Learning rate at which the last rounds began."""
        return float(self.name.split("-", 3 if self.lacks_constraint else 2 if self.experts > 1 else 1)[-1])

    @property
    def seconds(self) -> float:
        """Seconds of training by the clock, without validation."""
        return float(sum(record["seconds"] for record in self.history))


def load_text(data: Path, cache: Path, words: int) -> Text:
    """Contexts of all three splits, kept in `cache`."""
    folder = find_base_model(data)
    cache.mkdir(parents=True, exist_ok=True)
    fit = load_states(folder, "train", words, cache / f"train-{words}.safetensors")
    valid = load_states(folder, "valid", None, cache / "valid.safetensors")
    test = load_states(folder, "test", None, cache / "test.safetensors")
    vocabulary = tuple((folder / "vocab.txt").read_text("utf-8").split())
    counts = np.bincount(np.load(folder / "train.npy"), minlength=len(vocabulary))
    return Text(load_layer(folder), fit, valid, test, vocabulary, tuple(counts.tolist()))


def make_examples(contexts: Contexts, most: int | None = None) -> Examples:
    """A split as tensors; with `most`, that many random rows of it."""
    assert contexts.targets is not None
    rows = np.arange(len(contexts.contexts))
    if most is not None:
        rows = np.random.default_rng(0).permutation(rows)[:most]
    return Examples(torch.from_numpy(contexts.contexts[rows]), torch.from_numpy(contexts.targets[rows]))


def train_or_load(
    name: str, text: Text, options: TrainOptions, head_options: DSOptions, folder: Path, report: Progress
) -> Head:
    """The head of this name in `folder`, trained where it is not there yet."""
    figures_file = folder / f"{name}.json"
    if not figures_file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        fit, validation = make_examples(text.fit), make_examples(text.valid, WATCHED_CONTEXTS)
        result = train(text.softmax, fit, validation, options, head_options, report, folder / f"{name}.state")
        save_module(folder / name, result.module)
        record = {"history": result.history, "peak_bytes": result.peak_bytes, "notices": result.notices}
        figures_file.write_text(json.dumps(record), "utf-8")
        (folder / f"{name}.state").unlink()
    return load_head(name, text, folder)


def load_complete_heads(text: Text, folder: Path) -> list[Head]:
    """Every head whose training has ended."""
    return [load_head(path.stem, text, folder) for path in sorted(folder.glob("*.json"))]


def load_head(name: str, text: Text, folder: Path) -> Head:
    """The head of this name that `train_or_load` stored in `folder`."""
    record = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return Head(name, load_module(folder / name, text.dense.classes), record["history"], record["peak_bytes"])


def save_module(path: Path, module: DSSoftmax) -> None:
    save_file(dict(module.state_dict()), path.with_name(path.name + ".safetensors"))


def load_module(path: Path, classes: int) -> DSSoftmax:
    """The module that `save_module` wrote."""
    return DSSoftmax.from_state(load_file(path.with_name(path.name + ".safetensors")), classes)


@torch.no_grad()
def find_best_classes(module: DSSoftmax | FullSoftmax, contexts: Tensor, depth: int = 10) -> Tensor:
    """[n, depth] ids, best first; -1 where there are fewer."""
    ask: Callable[[Tensor], Tensor]
    if isinstance(module, FullSoftmax):
        ask = lambda part: module.logits(part).topk(depth, dim=1).indices  # noqa: E731
    else:
        ask = lambda part: module.topk(part, depth)[0]  # noqa: E731
    return torch.cat([ask(part) for part in torch.split(contexts, 512)])


def measure_accuracy(module: DSSoftmax | FullSoftmax, contexts: Contexts) -> dict[int, float]:
    """Share of targets among the best 1, 5 and 10 of all rows."""
    assert contexts.targets is not None
    return share_by_depth(find_best_classes(module, torch.from_numpy(contexts.contexts)), contexts.targets)


def share_by_depth(best: torch.Tensor, targets: IdArray) -> dict[int, float]:
    """The share of `targets` [n] among the first 1, 5 and 10 of the best classes [n, k] of each row."""
    hits = best == torch.from_numpy(targets)[:, None]
    return {k: float(hits[:, :k].any(dim=1).double().mean()) for k in (1, 5, 10)}


@dataclass(frozen=True)
class Runs:
    """Trainings of one length, their heads kept in `folder`."""

    text: Text
    folder: Path
    report: Progress
    full: bool = False

    def ds(self, rate: float = DEFAULT_RATE, experts: int = PAPER_EXPERTS, *, starred: bool = False) -> Head:
        """DS-K, or DS-K*, by mitosis from 2 experts."""
        options = FULL_MITOSIS if self.full else MITOSIS
        target = target_speedup(experts, STARRED_TARGET if starred else TARGET)
        training = replace(options, experts=experts, speedup=target, tuning_rate=rate)
        name = f"ds-{experts}{'-starred' if starred else ''}-{rate:g}"
        return train_or_load(name, self.text, training, DSOptions(keep_one=not starred), self.folder, self.report)

    def ds_by_lassos(self, experts: int) -> Head:
        """DS-K pruned by the lassos alone, kept in a folder of its own beside the others'."""
        training = replace(LASSO_MITOSIS, experts=experts, speedup=target_speedup(experts, TARGET))
        name, folder = f"ds-{experts}-{training.tuning_rate:g}", self.folder.with_name(LASSO_FOLDER)
        return train_or_load(name, self.text, training, DSOptions(), folder, self.report)

    def dense(self, rate: float) -> Head:
        """Dense, retrained in the same way."""
        training = replace(FULL_DENSE_TRAINING if self.full else DENSE_TRAINING, learning_rate=rate, tuning_rate=rate)
        return train_or_load(f"dense-{rate:g}", self.text, training, DSOptions(), self.folder, self.report)


def target_speedup(experts: int, most: float) -> float:
    """The FLOP speed-up asked of K experts, `most` of `PAPER_EXPERTS`: as many times more by each cloning."""
    return float(most ** (math.log2(experts) / math.log2(PAPER_EXPERTS)))
