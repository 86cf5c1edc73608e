"""Mixtape held against its paper (Yang et al., NeurIPS 2019), trained, exported and served on Penn Treebank.

  python -m benchmarks.papers.mixtape.reproduce --data DATA

Writes docs/mixtape.md and its picture. Trained heads and exported bundles stay in the cache.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from types import SimpleNamespace

import torch
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, PlanResult
from shortlist.head import Head
from shortlist.plans.common.base import Plan
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_models.mixtures.mixtape import Mixtape
from shortlist_models.progress import Progress

from benchmarks.datasets.ptb import find_base_model
from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.papers.adaptive.lazy import format_agreement, make_float64_distribution, measure_agreement
from benchmarks.papers.common.command import PICTURES, make_paper_parser, write_page

from . import heads, joint
from .page_texts import (
    AGREEMENT_REMARKS,
    FROZEN_REMARKS,
    INTRODUCTION,
    JOINT_REMARKS,
    LEFT_OUT_SECTION,
    RANK_REMARKS,
    SERVED_REMARKS,
    STEP_REMARKS,
)
from .ranks import RANK_ROWS, draw_spectra, measure_spectrum
from .times import export_heads, format_served, format_steps, measure_served, measure_steps

MODULE = "mixtape.reproduce"
EVERY_K, EVERY_K_ROWS = range(1, 101), 512
DEEP_K = 100
LARGE_CLASSES = 50_000
FIT_WORDS = 310_000


def load_data(place: Place) -> DataSet:
    """Penn Treebank's contexts, by the base model."""
    return DATASETS["ptb"](place)


def load_head(name: str, data: DataSet, place: Place, report: Progress) -> heads.TrainedHead:
    """The head `name`, trained or from the cache."""
    assert data.fit.targets is not None
    contexts, targets = torch.from_numpy(data.fit.contexts), torch.from_numpy(data.fit.targets)
    return heads.train_or_load(name, contexts, targets, data.dense.classes, place.cache / "ptb", report)


def make_frozen_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on heads over the frozen body."""
    del args
    data = load_data(place)
    assert data.test.targets is not None
    contexts, targets = torch.from_numpy(data.test.contexts), torch.from_numpy(data.test.targets)
    lines = ["| head | parameters | test perplexity | top-1 |\n|---|---|---|---|\n"]
    for name in heads.HEADS | heads.ABLATIONS:
        one = heads.measure_quality(load_head(name, data, place, report), contexts, targets)
        lines.append(f"| {name} | {one.parameters:,} | {one.perplexity:.2f} | {one.accuracy:.4f} |\n")
    return f"## The body frozen\n\n{FROZEN_REMARKS}\n{''.join(lines)}"


def format_joint(runs: Mapping[str, Sequence[joint.JointRun]]) -> str:
    """A table with a line for each head, its seeds side by side."""
    lines = ["| head | parameters | test perplexity, seeds 0, 1, 2 | mean | valid, mean |\n|---|---|---|---|---|\n"]
    for name, seeds in runs.items():
        each = ", ".join(f"{one.test:.2f}" for one in seeds)
        means = f"{mean(one.test for one in seeds):.2f} | {mean(one.valid for one in seeds):.2f}"
        lines.append(f"| {name} | {seeds[0].parameters:,} | {each} | {means} |\n")
    return "".join(lines)


def make_joint_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on bodies trained with their heads."""
    del args
    folder, cache = find_base_model(place.data), place.cache / "ptb"
    runs = {
        name: [joint.train_or_load(name, seed, folder, cache, report) for seed in joint.SEEDS]
        for name in joint.CONTENDERS
    }
    return f"## The body trained with the head\n\n{JOINT_REMARKS}\n{format_joint(runs)}"


def make_steps_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on training steps."""
    del place, args
    return f"## Training steps\n\n{STEP_REMARKS}\n{format_steps(measure_steps(report))}"


def make_rank_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on the bottleneck; draws its picture."""
    del args
    data = load_data(place)
    contexts = torch.from_numpy(data.test.contexts[:RANK_ROWS])
    spectra = {name: measure_spectrum(load_head(name, data, place, report), contexts) for name in heads.HEADS}
    draw_spectra(spectra, PICTURES / "mixtape-rank.png")
    ranks = "".join(f"| {name} | {one.rank} |\n" for name, one in spectra.items())
    picture = "![singular values](pictures/mixtape-rank.png)\n"
    return f"## Rank\n\n{RANK_REMARKS}\n| head | rank |\n|---|---|\n{ranks}\n{picture}"


def answer_exactly(head: Head) -> Plan:
    """Exact answers as a plan whose logits are log-probabilities."""

    def topk(contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        assert head.exact is not None
        result = head.run(head.exact, contexts, k, class_filter)
        result.logits = result.logits - result.log_normalizer[:, None]
        return result

    return SimpleNamespace(topk=topk)  # type: ignore[return-value]


def make_agreement(head: Head, module: Mixtape, data: DataSet, rows: int | None) -> str:
    """The table of exact answers beside the module's: all rows at one k, some rows at every k."""
    contexts, truth = torch.from_numpy(data.test.contexts)[:rows], make_float64_distribution(module)
    plan, first = answer_exactly(head), f"the first {EVERY_K_ROWS} rows, every k to {DEEP_K}"
    results = measure_agreement(plan, {first: truth}, contexts[:EVERY_K_ROWS], EVERY_K)
    results |= measure_agreement(plan, {f"all {len(contexts):,} rows, k = {DEEP_K}": truth}, contexts, [DEEP_K])
    return format_agreement(results)


def make_large(data: DataSet) -> tuple[Dense, Mixtape]:
    """A layer and a Mixtape of more classes, with random weights: for times alone."""
    torch.manual_seed(0)
    module = Mixtape(data.dense.dim, LARGE_CLASSES).eval()
    return Dense(module.weight.detach().numpy(), module.bias.detach().numpy()), module


def make_served_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on serving: times beside dense, and exact answers beside the module's."""
    data, cache = load_data(place), place.cache / "ptb"
    rows, served, agreement = data.test.contexts, [], ""
    for name, short in ((heads.MIXTAPE, "tenth"), (heads.SMALL, "twentieth")):
        module = load_head(name, data, place, report)
        assert isinstance(module, Mixtape)
        head, dense = export_heads(short, data.dense, data.fit, module, cache)
        served.append(measure_served(name, head, dense, rows))
        agreement = agreement or make_agreement(head, module, data, args.rows)
    layer, module = make_large(data)
    fit = Contexts(data.fit.contexts[:20_000])
    head, dense = export_heads("large", layer, fit, module, cache)
    served.append(measure_served(f"V = {LARGE_CLASSES:,}, random weights", head, dense, rows))
    return (
        f"## Served\n\n{SERVED_REMARKS}\n{format_served(served)}\n"
        f"## Exact answers against the module\n\n{AGREEMENT_REMARKS}\n{agreement}"
    )


SECTIONS = {
    "frozen": make_frozen_section,
    "joint": make_joint_section,
    "steps": make_steps_section,
    "served": make_served_section,
    "rank": make_rank_section,
}


def make_page(args: argparse.Namespace) -> str | None:
    """Make the sections asked for, each kept in the cache; the page where all are there, else None."""
    torch.set_num_threads(1)
    folder: Path = args.cache / "ptb"
    with progress_bar("mixtape") as report:
        place = Place(args.cache, args.data, options={"words": str(FIT_WORDS)})
        for name in [args.only] if args.only else SECTIONS:
            text = SECTIONS[name](place, args, report)
            (folder / f"mixtape-page-{name}.md").write_text(text, "utf-8")
    paths = [folder / f"mixtape-page-{name}.md" for name in SECTIONS]
    if not all(path.is_file() for path in paths):
        return None
    return "\n".join([INTRODUCTION, *(path.read_text("utf-8") for path in paths), LEFT_OUT_SECTION])


def main() -> int:
    parser = make_paper_parser(MODULE, __doc__, data="ptb/")
    parser.add_argument("--rows", type=int, help="test rows whose exact answers are compared (all)")
    parser.add_argument("--only", choices=list(SECTIONS), help="one section; the page is written when all are there")
    args = parser.parse_args()
    return write_page(MODULE, "mixtape.md", lambda: make_page(args))


if __name__ == "__main__":
    sys.exit(main())
