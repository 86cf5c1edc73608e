"""Mixtape held against its paper (Yang et al., NeurIPS 2019), trained, exported and served on Penn Treebank.

  python -m benchmarks.papers.mixtape.reproduce --data DATA

Writes docs/mixtape.md and its picture. Trained heads, exported bundles and the page's sections stay in the cache; with
--only, sections that are not there stay as the page has them.
"""

from __future__ import annotations

import argparse
import re
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
from benchmarks.papers.common.command import DOCS, PICTURES, make_paper_parser, write_page

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

MODULE, PAGE = "mixtape.reproduce", "mixtape.md"
EVERY_K, EVERY_K_ROWS = range(1, 101), 512
DEEP_K = 100
LARGE_CLASSES, LARGE_FIT_ROWS = 50_000, 20_000
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
    return f"{FROZEN_REMARKS}\n{''.join(lines)}"


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
    return f"{JOINT_REMARKS}\n{format_joint(runs)}"


def make_steps_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on training steps."""
    del place, args
    return f"{STEP_REMARKS}\n{format_steps(measure_steps(report))}"


def make_rank_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on the bottleneck; draws its picture."""
    del args
    data = load_data(place)
    contexts = torch.from_numpy(data.test.contexts[:RANK_ROWS])
    spectra = {name: measure_spectrum(load_head(name, data, place, report), contexts) for name in heads.HEADS}
    draw_spectra(spectra, PICTURES / "mixtape-rank.png")
    ranks = "".join(f"| {name} | {one.rank} |\n" for name, one in spectra.items())
    picture = "![singular values](pictures/mixtape-rank.png)\n"
    return f"{RANK_REMARKS}\n| head | rank |\n|---|---|\n{ranks}\n{picture}"


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
    """The section on serving: times beside dense."""
    del args
    data, cache, served = load_data(place), place.cache / "ptb", []
    for name, short in ((heads.MIXTAPE, "tenth"), (heads.SMALL, "twentieth")):
        head, dense = export_heads(short, data.dense, data.fit, load_mixtape(name, data, place, report), cache)
        served.append(measure_served(name, head, dense, data.test.contexts))
    layer, module = make_large(data)
    head, dense = export_heads("large", layer, Contexts(data.fit.contexts[:LARGE_FIT_ROWS]), module, cache)
    served.append(measure_served(f"V = {LARGE_CLASSES:,}, random weights", head, dense, data.test.contexts))
    return f"{SERVED_REMARKS}\n{format_served(served)}"


def load_mixtape(name: str, data: DataSet, place: Place, report: Progress) -> Mixtape:
    """The head `name`, which is a Mixtape."""
    module = load_head(name, data, place, report)
    assert isinstance(module, Mixtape)
    return module


def make_agreement_section(place: Place, args: argparse.Namespace, report: Progress) -> str:
    """The section on exact answers beside the module's."""
    data = load_data(place)
    module = load_mixtape(heads.MIXTAPE, data, place, report)
    head, _ = export_heads("tenth", data.dense, data.fit, module, place.cache / "ptb")
    return f"{AGREEMENT_REMARKS}\n{make_agreement(head, module, data, args.rows)}"


SECTIONS = {
    "frozen": ("The body frozen", make_frozen_section),
    "joint": ("The body trained with the head", make_joint_section),
    "steps": ("Training steps", make_steps_section),
    "served": ("Served", make_served_section),
    "agreement": ("Exact answers against the module", make_agreement_section),
    "rank": ("Rank", make_rank_section),
}


def recall_section(path: Path, title: str, page: str) -> str | None:
    """The section of this title from its file in the cache, else from the page that is there; None where neither is."""
    if path.is_file():
        return path.read_text("utf-8")
    match = re.search(rf"^## {title}\n.*?(?=^## )", page, re.MULTILINE | re.DOTALL)
    return None if match is None else match.group()


def make_page(args: argparse.Namespace) -> str | None:
    """Make the sections asked for, each kept in the cache; the page where all are there, else None."""
    torch.set_num_threads(1)
    paths = {name: args.cache / "ptb" / f"mixtape-page-{name}.md" for name in SECTIONS}
    with progress_bar("mixtape") as report:
        place = Place(args.cache, args.data, options={"words": str(FIT_WORDS)})
        for name in [args.only] if args.only else SECTIONS:
            title, make = SECTIONS[name]
            paths[name].write_text(f"## {title}\n\n{make(place, args, report)}", "utf-8")
    return join_sections(paths)


def join_sections(paths: Mapping[str, Path]) -> str | None:
    """The page of the sections in `paths`, or in the page that is there; None where one is missing."""
    page = (DOCS / PAGE).read_text("utf-8") if (DOCS / PAGE).is_file() else ""
    texts = [recall_section(path, SECTIONS[name][0], page) for name, path in paths.items()]
    parts = [INTRODUCTION, *(text.rstrip("\n") + "\n" for text in texts if text is not None), LEFT_OUT_SECTION]
    return None if None in texts else "\n".join(parts)


def main() -> int:
    parser = make_paper_parser(MODULE, __doc__, data="ptb/")
    parser.add_argument("--rows", type=int, help="test rows whose exact answers are compared (all)")
    parser.add_argument("--only", choices=list(SECTIONS), help="one section; the page is written when all are there")
    args = parser.parse_args()
    return write_page(MODULE, PAGE, lambda: make_page(args))


if __name__ == "__main__":
    sys.exit(main())
