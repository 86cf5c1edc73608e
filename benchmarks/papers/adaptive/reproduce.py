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

import torch
from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.bundle.reader import Bundle
from shortlist.core.filters import UNRESTRICTED
from shortlist.evaluation.timing import Call, find_fastest, time_calls
from shortlist.head import Head
from shortlist.plans.registry import AdaptivePlan
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_models.adaptive.softmax import AdaptiveSoftmax
from shortlist_models.progress import Progress

from benchmarks.common.dense import open_spellings
from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.papers.common.command import PICTURES, make_paper_parser, write_page
from benchmarks.papers.common.wall_times import (
    TIMED_K,
    WallTime,
    draw_rows,
    make_head_call,
    make_topk_call,
    summarize_times,
)

from . import heads
from .lazy import (
    OPENING_KS,
    format_agreement,
    format_openings,
    make_float64_distribution,
    make_served_distribution,
    measure_agreement,
    measure_openings,
)
from .page_texts import (
    ADAPTIVE_INTRODUCTION,
    BRUTE_FORCE_REMARKS,
    CUTOFFS_REMARKS,
    HEADS_REMARKS,
    LEFT_OUT_SECTION,
    OPENINGS_REMARKS,
    PICTURE_REMARKS,
)
from .pictures import draw_training
from .training_times import STEP_BATCH, STEP_DIM, Training, measure_training

FIT_THIRD_WORDS = 310_000  # a third of train
PUBLISHED_CUTOFFS = [2000]  # the authors' cutoff for Penn Treebank, README of facebookresearch/adaptive-softmax
WALL_TIME_ROWS = 4000
EVERY_K = range(1, 101)
SERVED_DISTRIBUTION, FLOAT64_DISTRIBUTION = "the head's own distribution, as served", "torch's, in float64"
SLOW_HEADS = DSOFTMAX, HIERARCHICAL = ("dsoftmax", "hierarchical")
MODULE = "adaptive.reproduce"


@dataclass(frozen=True)
class ExportedHead:
    """A trained head as a bundle. tails_opened: mean of a row, by k."""

    trained_head: heads.TrainedHead
    head: Head
    tails_opened: dict[int, float]
    macs: float


@dataclass(frozen=True)
class Quality:
    """Test perplexity and top-1 accuracy."""

    perplexity: float
    accuracy: float


def measure_quality(one: heads.TrainedHead, data: DataSet) -> Quality:
    """Measure perplexity and accuracy on all test rows."""
    assert data.test.targets is not None
    contexts, targets = torch.from_numpy(data.test.contexts), torch.from_numpy(data.test.targets)
    hits, nats = 0, 0.0
    with torch.inference_mode():
        for rows, gold in zip(torch.split(contexts, 512), torch.split(targets, 512), strict=True):
            logprobs = one.log_prob(rows)
            hits += int((logprobs.argmax(dim=1) == gold).sum())
            nats -= float(logprobs.gather(1, gold[:, None]).double().sum())
    return Quality(math.exp(nats / len(targets)), hits / len(targets))


def export_head(one: heads.TrainedHead, method: str, data: DataSet, cache: Path, report: Progress) -> ExportedHead:
    """Export a trained head as `shortlist export` would, and open it by the service's runtime."""
    out = cache / f"bundle-{FORMAT_VERSION}-{one.name.replace(', ', '-').replace(' ', '-').replace(',', '')}" / "1"
    if not out.is_dir():
        export(data.dense, data.fit, out, Request(method, head=one.module, threads=1), report)
    head = Head(Bundle(out, verify=False), "cpu", 1)
    tails_opened = {}
    tally = head.plan.tally
    assert tally is not None
    for k in OPENING_KS:
        tally.reset()
        head.run(head.plan, data.test.contexts, k, UNRESTRICTED)
        tails_opened[k] = tally.mean
    quality = head.manifest.quality
    assert quality is not None
    return ExportedHead(one, head, tails_opened, quality.cost_macs)


def time_heads(data: DataSet, contenders: Sequence[ExportedHead], cache: Path) -> dict[str, WallTime]:
    """`Head.topk` at batch 1 beside the fastest dense, by name."""
    rows = draw_rows(data.test.contexts, WALL_TIME_ROWS)
    calls: dict[str, Call] = {
        name: make_topk_call(call) for name, call in open_spellings(data.dense, cache / "dense", 1).items()
    }
    best = find_fastest(calls, rows, 1)
    calls_by_name: dict[str, Call] = {"dense": calls[best]} | {
        one.trained_head.name: make_head_call(one.head) for one in contenders
    }
    return {one.name: one for one in summarize_times(time_calls(calls_by_name, rows, 1), "dense")}


def format_heads(
    dense: Quality,
    others: Sequence[tuple[heads.TrainedHead, Quality]],
    exported_heads: Sequence[ExportedHead],
    wall: dict[str, WallTime],
) -> str:
    """The table of quality, cost and wall time."""
    dense_wall = wall["dense"]
    by_name = {one.trained_head.name: one for one in exported_heads}
    lines = [
        "| head | test perplexity | over dense | top-1 | classes in the head | times fewer multiply-adds "
        f"| tails opened, k = {TIMED_K} | us, mean | us, median | times dense |\n{'|---' * 10}|\n",
        f"| dense | {dense.perplexity:.2f} | 1 | {dense.accuracy:.4f} | | 1 | "
        f"| {dense_wall.mean:.1f} | {dense_wall.median:.1f} | 1 |\n",
    ]
    for one, quality in others:
        over = quality.perplexity / dense.perplexity
        cells = [one.name, f"{quality.perplexity:.2f}", f"{over:.3f}", f"{quality.accuracy:.4f}"]
        cells += (
            format_serving_cells(by_name[one.name], wall[one.name])
            if one.name in by_name
            else [*[""] * 5, "not served"]
        )
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def format_serving_cells(one: ExportedHead, wall: WallTime) -> list[str]:
    """The cells that only a head with a bundle has."""
    assert isinstance(one.head.plan, AdaptivePlan)
    costs = [f"{one.head.plan.sizes[0]:,}", f"{1 / one.macs:.1f}", f"{one.tails_opened[TIMED_K]:.2f}"]
    return [*costs, f"{wall.mean:.1f}", f"{wall.median:.1f}", f"{wall.speedup:.2f}"]


def format_choice(choice: heads.Choice) -> str:
    """The table of predicted serving times."""
    model = choice.model
    each, flat = model.slope * (STEP_DIM + model.extra) * 1e9, model.k0(STEP_DIM, 1)
    lines = [
        f"A served product over k classes takes max(c + lambda k0, c + lambda k): c = {model.constant * 1e6:.1f} us, "
        f"lambda = {each:.1f} ns a class of width {STEP_DIM}, k0 = {flat:.0f} classes. A class costs as much as "
        f"{model.extra:.0f} dimensions beyond its width.\n\n",
        "| tails | cutoffs | targets in the head | predicted, us | times dense, predicted |\n|---|---|---|---|---|\n",
    ]
    for number, cuts in choice.cuts.items():
        cutoffs = ", ".join(f"{one:,}" for one in cuts.cutoffs)
        lines.append(f"| {number} | {cutoffs} | {cuts.coverage:.1%} | {cuts.seconds * 1e6:.1f} | {cuts.gain:.2f} |\n")
    return "".join(lines)


def format_training(training: Training) -> str:
    """The table of training steps by vocabulary."""
    model = training.model
    each, flat = model.slope * (STEP_DIM + model.extra) * 1e9, model.k0(STEP_DIM, STEP_BATCH)
    lines = [
        f"A step is forward, loss and backward of a batch of {STEP_BATCH} with d = {STEP_DIM} and targets by Zipf's "
        "law, without the optimiser. The cost model fitted on this machine has "
        f"c = {model.constant * 1e6:.0f} us, lambda = {each:.0f} ns a class and row, and k0 = {flat:.0f}.\n\n",
        "| V | output layer | ms, measured | ms, predicted | times faster than full |\n|---|---|---|---|---|\n",
    ]
    for one in training.vocabularies:
        for step in one.steps:
            prediction = "" if step.prediction is None else f"{step.prediction * 1e3:.1f}"
            faster = one.steps[0].seconds / step.seconds
            lines.append(
                f"| {one.classes:,} | {step.name} | {step.seconds * 1e3:.1f} | {prediction} | {faster:.2f} |\n"
            )
    return "".join(lines)


def section_path(cache: Path, section: str) -> Path:
    """The file of a section that is made."""
    return cache / f"adaptive-page-{section}.md"


def load_sample(place: Place) -> tuple[DataSet, heads.Sample]:
    """The data set, and what heads are trained on."""
    data = DATASETS["ptb"](place)
    assert data.fit.targets is not None
    contexts, targets = torch.from_numpy(data.fit.contexts), torch.from_numpy(data.fit.targets)
    return data, heads.Sample.make(contexts, targets, data.dense.classes)


def make_heads_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on quality and cost."""
    (data, sample), cache = load_sample(place), place.cache / "ptb"
    choice = heads.choose_cutoffs(data.dense.module, sample, cache)
    ours = heads.train_adaptive(sample, choice.fastest_cutoffs, cache, report)
    published_head = heads.train_adaptive(sample, PUBLISHED_CUTOFFS, cache, report)
    trained_heads = [ours, published_head]
    exported_heads = [export_head(one, "adaptive", data, cache, report) for one in trained_heads]
    if DSOFTMAX not in args.leave_out:
        trained_heads.append(heads.train_dsoftmax(sample, choice.fastest_cutoffs, cache, report))
        exported_heads.append(export_head(trained_heads[-1], DSOFTMAX, data, cache, report))
    if HIERARCHICAL not in args.leave_out:
        trained_heads.append(heads.train_hierarchical(sample, cache, report))
    wall = time_heads(data, exported_heads, cache)
    base = measure_quality(heads.train_dense(sample, cache, report), data)
    others = [(one, measure_quality(one, data)) for one in trained_heads]
    table = format_heads(base, others, exported_heads, wall)
    missing = f"Not trained in this run: {', '.join(args.leave_out)}.\n" if args.leave_out else ""
    return (
        f"## Penn Treebank\n\n{table}\n{HEADS_REMARKS}{missing}\n## Cutoffs\n\n{CUTOFFS_REMARKS}{format_choice(choice)}"
    )


def make_lazy_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on lazy tails: how often they are opened, and whether results are those of all classes."""
    (data, sample), cache = load_sample(place), place.cache / "ptb"
    choice = heads.choose_cutoffs(data.dense.module, sample, cache)
    ours = heads.train_adaptive(sample, choice.fastest_cutoffs, cache, report)
    assert isinstance(ours.module, AdaptiveSoftmax)
    head = export_head(ours, "adaptive", data, cache, report).head
    contexts = torch.from_numpy(data.test.contexts)
    rows = contexts[: args.rows]
    truths = {
        SERVED_DISTRIBUTION: make_served_distribution(head.plan),
        FLOAT64_DISTRIBUTION: make_float64_distribution(ours.module),
    }
    results = measure_agreement(head.plan, truths, rows, EVERY_K)
    openings = OPENINGS_REMARKS + format_openings(measure_openings(ours.module, contexts[:20_000]))
    agreement = BRUTE_FORCE_REMARKS + format_agreement(results)
    return f"## Tails opened\n\n{openings}\n## Answers against brute force\n\n{agreement}"


def make_training_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on training steps; draws its picture."""
    del place, args
    steps = measure_training(report)
    draw_training(steps, PICTURES / "adaptive-training.png")
    return f"## Training steps\n\n{format_training(steps)}\n{PICTURE_REMARKS}"


SECTIONS = {"heads": make_heads_section, "lazy": make_lazy_section, "training": make_training_section}


def make_page(args: argparse.Namespace) -> str | None:
    """Make the sections asked for, each kept in the cache; the page where all are there, else None."""
    torch.set_num_threads(1)
    with progress_bar("adaptive softmax") as report:
        place = Place(args.cache, args.data, options={"words": str(FIT_THIRD_WORDS)})
        for name in [args.only] if args.only else SECTIONS:
            text = SECTIONS[name](place, args, report)
            section_path(args.cache / "ptb", name).write_text(text, "utf-8")
    paths = [section_path(args.cache / "ptb", name) for name in SECTIONS]
    if not all(path.is_file() for path in paths):
        return None
    return "\n".join([ADAPTIVE_INTRODUCTION, *(path.read_text("utf-8") for path in paths), LEFT_OUT_SECTION])


def main() -> int:
    parser = make_paper_parser(MODULE, __doc__, data="ptb/")
    parser.add_argument("--rows", type=int, help="test rows asked for every k to 100 (all)")
    parser.add_argument(
        "--leave-out", choices=SLOW_HEADS, action="append", default=[], help="a head that is slow to train"
    )
    parser.add_argument("--only", choices=list(SECTIONS), help="one section; the page is written when all are there")
    args = parser.parse_args()
    return write_page(MODULE, "adaptive.md", lambda: make_page(args))


if __name__ == "__main__":
    sys.exit(main())
