"""Adaptive softmax held against its paper (Grave et al., ICML 2017), trained, exported and served on Penn Treebank.

  python -m benchmarks.papers.adaptive.reproduce --data DATA

Writes docs/adaptive.md and its picture. Trained heads and exported bundles stay in the cache.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from shortlist.bundle.reader import Bundle
from shortlist.core.filters import UNRESTRICTED
from shortlist.errors import ShortlistError
from shortlist.evaluation.timing import Call, find_fastest, time_calls
from shortlist.head import Head
from shortlist.plans.registry import AdaptivePlan
from shortlist_exporter.commands.progress import Report, progress_bar
from shortlist_exporter.core.layer import torch_dense
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_models.adaptive.softmax import AdaptiveSoftmax

from benchmarks.common.dense import TopK, spellings
from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.papers.l2s.times import Wall, walls

from . import heads
from .lazy import DEPTHS, agreement_table, agreements, in_float64, openings, openings_table, own_distribution
from .pictures import pictures
from .times import BATCH, DIM, Training, training
from .words import BRUTE, CUTOFFS, HEADER, LEFT_OUT, OPENED, PICTURE, REMARKS

WORDS = 310_000  # a third of train
PUBLISHED = [2000]  # the authors' cutoff for Penn Treebank, README of facebookresearch/adaptive-softmax
K = heads.K
TIMED = 4000  # rows
EVERY_K = range(1, 101)
OWN, FLOAT64 = "the head's own distribution, as served", "torch's, in float64"
SLOW = DSOFTMAX, HIERARCHICAL = ("dsoftmax", "hierarchical")
DOCS = Path("docs")


@dataclass(frozen=True)
class Served:
    """A trained head as a bundle. opened: tails a row, by k."""

    trained: heads.Trained
    head: Head
    opened: dict[int, float]
    macs: float


@dataclass(frozen=True)
class Quality:
    """Test perplexity and top-1 accuracy."""

    perplexity: float
    accuracy: float


def quality_of(one: heads.Trained, data: DataSet) -> Quality:
    """On all of test."""
    assert data.test.targets is not None
    contexts, targets = torch.from_numpy(data.test.contexts), torch.from_numpy(data.test.targets)
    hits, nats = 0, 0.0
    with torch.inference_mode():
        for rows, gold in zip(torch.split(contexts, 512), torch.split(targets, 512), strict=True):
            logprobs = one.log_prob(rows)
            hits += int((logprobs.argmax(dim=1) == gold).sum())
            nats -= float(logprobs.gather(1, gold[:, None]).double().sum())
    return Quality(math.exp(nats / len(targets)), hits / len(targets))


def served(one: heads.Trained, method: str, data: DataSet, cache: Path, report: Report) -> Served:
    """Exported by the exporter's own way for trained heads, and opened by the service's runtime."""
    out = cache / f"bundle-{one.name.replace(', ', '-').replace(' ', '-').replace(',', '')}" / "1"
    if not out.is_dir():
        export(data.dense, data.fit, out, Request(method, head=one.module, threads=1), report)
    head = Head(Bundle(out, verify=False), "cpu", 1)
    opened = {}
    tally = head.plan.tally
    assert tally is not None
    for k in DEPTHS:
        tally.reset()
        head.run(head.plan, data.test.contexts, k, UNRESTRICTED)
        opened[k] = tally.mean
    quality = head.manifest.quality
    assert quality is not None
    return Served(one, head, opened, quality.cost_macs)


def timed_heads(data: DataSet, contenders: Sequence[Served], cache: Path) -> dict[str, Wall]:
    """`Head.topk` at batch 1 beside the fastest dense, by name."""
    rows = data.test.contexts[np.random.default_rng(0).permutation(len(data.test.contexts))[:TIMED]]
    calls: dict[str, Call] = {name: asked(call) for name, call in spellings(data.dense, cache / "dense", 1).items()}
    best = find_fastest(calls, rows, 1)
    timed: dict[str, Call] = {"dense": calls[best]} | {one.trained.name: head_call(one.head) for one in contenders}
    return {one.name: one for one in walls(time_calls(timed, rows, 1), "dense")}


def asked(topk: TopK) -> Call:
    """A spelling of dense as a timed call."""
    return lambda rows: topk(rows, K)


def head_call(head: Head) -> Call:
    """A head as a timed call, log-probabilities and all."""
    return lambda rows: head.topk(rows, K).ids


def table(
    dense: Quality, others: Sequence[tuple[heads.Trained, Quality]], exported: Sequence[Served], wall: dict[str, Wall]
) -> str:
    """Quality, cost, wall time."""
    own = wall["dense"]
    known = {one.trained.name: one for one in exported}
    lines = [
        "| head | test perplexity | over dense | top-1 | classes in the head | times fewer multiply-adds "
        f"| tails opened, k = {K} | us, mean | us, median | times dense |\n{'|---' * 10}|\n",
        f"| dense | {dense.perplexity:.2f} | 1 | {dense.accuracy:.4f} | | 1 | | {own.mean:.1f} | {own.median:.1f} | 1 "
        "|\n",
    ]
    for one, quality in others:
        over = quality.perplexity / dense.perplexity
        cells = [one.name, f"{quality.perplexity:.2f}", f"{over:.3f}", f"{quality.accuracy:.4f}"]
        cells += served_cells(known[one.name], wall[one.name]) if one.name in known else [*[""] * 5, "not served"]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def served_cells(one: Served, wall: Wall) -> list[str]:
    """What a bundle adds."""
    assert isinstance(one.head.plan, AdaptivePlan)
    costs = [f"{one.head.plan.sizes[0]:,}", f"{1 / one.macs:.1f}", f"{one.opened[K]:.2f}"]
    return [*costs, f"{wall.mean:.1f}", f"{wall.median:.1f}", f"{wall.speedup:.2f}"]


def choice_table(choice: heads.Choice) -> str:
    """Predictions for serving."""
    model = choice.model
    each, flat = model.slope * (DIM + model.extra) * 1e9, model.k0(DIM, 1)
    lines = [
        f"A served product takes max(c + lambda k0, c + lambda k): c = {model.constant * 1e6:.1f} us, "
        f"lambda = {each:.1f} ns a class of width {DIM}, k0 = {flat:.0f} classes; whatever its width, a class costs as "
        f"much as {model.extra:.0f} dimensions.\n\n",
        "| tails | cutoffs | targets in the head | predicted, us | times dense, predicted |\n|---|---|---|---|---|\n",
    ]
    for number, cuts in choice.cuts.items():
        cutoffs = ", ".join(f"{one:,}" for one in cuts.cutoffs)
        lines.append(f"| {number} | {cutoffs} | {cuts.coverage:.1%} | {cuts.seconds * 1e6:.1f} | {cuts.gain:.2f} |\n")
    return "".join(lines)


def training_table(found: Training) -> str:
    """Steps by vocabulary."""
    model = found.model
    each, flat = model.slope * (DIM + model.extra) * 1e9, model.k0(DIM, BATCH)
    lines = [
        f"Batches of {BATCH}, d = {DIM}, Zipf targets; forward, loss and backward, without the optimiser. Fitted "
        f"here: c = {model.constant * 1e6:.0f} us, lambda = {each:.0f} ns a class and row, k0 = {flat:.0f}.\n\n",
        "| V | output layer | ms, measured | ms, predicted | times faster than full |\n|---|---|---|---|---|\n",
    ]
    for one in found.vocabularies:
        for step in one.steps:
            said = "" if step.predicted is None else f"{step.predicted * 1e3:.1f}"
            faster = one.steps[0].seconds / step.seconds
            lines.append(f"| {one.classes:,} | {step.name} | {step.seconds * 1e3:.1f} | {said} | {faster:.2f} |\n")
    return "".join(lines)


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers.adaptive.reproduce", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder with ptb/")
    parser.add_argument("--cache", type=Path, default=Path("build/bench"), help="heads stay here (%(default)s)")
    parser.add_argument("--rows", type=int, help="test rows asked for every k to 100 (all)")
    parser.add_argument("--leave-out", choices=SLOW, action="append", default=[], help="a head that is slow to train")
    parser.add_argument("--only", choices=list(SECTIONS), help="one section; the page is written when all are there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    try:
        with progress_bar("adaptive softmax") as report:
            place = Place(args.cache, args.data, options={"words": str(WORDS)})
            for name in [args.only] if args.only else SECTIONS:
                text = SECTIONS[name](place, args, report)
                written(args.cache / "ptb", name).write_text(text, "utf-8")
    except ShortlistError as error:
        print(f"benchmarks.papers.adaptive.reproduce: {error}", file=sys.stderr)
        return 1
    paths = [written(args.cache / "ptb", name) for name in SECTIONS]
    if all(path.is_file() for path in paths):
        (DOCS / "adaptive.md").write_text(
            "\n".join([HEADER, *(path.read_text("utf-8") for path in paths), LEFT_OUT]), "utf-8"
        )
    return 0


def written(cache: Path, section: str) -> Path:
    """Where a section stays."""
    return cache / f"adaptive-page-{section}.md"


def sample_of(place: Place) -> tuple[DataSet, heads.Sample]:
    """The data set, and what heads are trained on."""
    data = DATASETS["ptb"](place)
    assert data.fit.targets is not None
    contexts, targets = torch.from_numpy(data.fit.contexts), torch.from_numpy(data.fit.targets)
    return data, heads.Sample.of(contexts, targets, data.dense.classes)


def heads_section(place: Place, args: argparse.Namespace, report: Report) -> str:
    """Quality and cost."""
    (data, sample), cache = sample_of(place), place.cache / "ptb"
    choice = heads.chosen(torch_dense(data.dense), sample, cache)
    ours = heads.adaptive(sample, choice.cutoffs, cache, report)
    published = heads.adaptive(sample, PUBLISHED, cache, report)
    trained = [ours, published]
    exported = [served(one, "adaptive", data, cache, report) for one in trained]
    if DSOFTMAX not in args.leave_out:
        trained.append(heads.dsoftmax(sample, choice.cutoffs, cache, report))
        exported.append(served(trained[-1], DSOFTMAX, data, cache, report))
    if HIERARCHICAL not in args.leave_out:
        trained.append(heads.hierarchical(sample, cache, report))
    wall = timed_heads(data, exported, cache)
    base = quality_of(heads.dense(sample, cache, report), data)
    others = [(one, quality_of(one, data)) for one in trained]
    found = table(base, others, exported, wall)
    missing = f"Not trained in this run: {', '.join(args.leave_out)}.\n" if args.leave_out else ""
    return f"## Penn Treebank\n\n{found}\n{REMARKS}{missing}\n## Cutoffs\n\n{CUTOFFS}{choice_table(choice)}"


def lazy_section(place: Place, args: argparse.Namespace, report: Report) -> str:
    """Openings and answers."""
    (data, sample), cache = sample_of(place), place.cache / "ptb"
    choice = heads.chosen(torch_dense(data.dense), sample, cache)
    ours = heads.adaptive(sample, choice.cutoffs, cache, report)
    assert isinstance(ours.module, AdaptiveSoftmax)
    head = served(ours, "adaptive", data, cache, report).head
    contexts = torch.from_numpy(data.test.contexts)
    asked = contexts[: args.rows]
    truths = {OWN: own_distribution(head.plan), FLOAT64: in_float64(ours.module)}
    found = agreements(head.plan, truths, asked, EVERY_K)
    opened = openings_table(openings(ours.module, contexts[:20_000]))
    return f"## Tails opened\n\n{OPENED}{opened}\n## Answers against brute force\n\n{BRUTE}{agreement_table(found)}"


def training_section(place: Place, args: argparse.Namespace, report: Report) -> str:
    """Steps, and their picture."""
    del place, args
    steps = training(report)
    pictures(steps, DOCS / "pictures" / "adaptive-training.png")
    return f"## Training steps\n\n{training_table(steps)}\n{PICTURE}"


SECTIONS = {"heads": heads_section, "lazy": lazy_section, "training": training_section}


if __name__ == "__main__":
    sys.exit(main())
