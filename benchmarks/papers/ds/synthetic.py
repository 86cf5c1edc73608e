"""Doubly Sparse Softmax on its paper's synthetic hierarchy: Figures 3 and A.1.

  python -m benchmarks.papers.ds.synthetic            # 10 x 10 and its ablations: minutes
  python -m benchmarks.papers.ds.synthetic --full     # 100 x 100 too

Writes docs/ds-softmax-synthetic.md and its pictures. Training leaves checkpoints below the cache and goes on from them.
Fails where a super class does not end in one expert.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import torch
from shortlist.errors import QualityError
from shortlist_exporter.commands.progress import progress_bar
from shortlist_models.progress import Progress

from benchmarks.papers.common.command import PICTURES, make_paper_parser, write_page

from .hierarchy import LARGE_HIERARCHY, SMALL_HIERARCHY, ExpertFigures, Setting, train_hierarchy
from .hierarchy_pictures import draw_experts

MODULE = "ds.synthetic"
SEEDS = (0, 1, 2)
ABLATIONS = {
    "everything": SMALL_HIERARCHY,
    "without group lasso": replace(SMALL_HIERARCHY, lasso=0.0),
    "without expert lasso": replace(SMALL_HIERARCHY, expert_lasso=0.0),
    "without load balance": replace(SMALL_HIERARCHY, load=0.0),
}

HIERARCHY_INTRODUCTION = """# Doubly Sparse Softmax: the synthetic hierarchy

Written by `make reproduce DATA=folder`; do not edit. This page reproduces section 3.1 of Liao et al. 2019, on data
made as by the authors' `synthetic.py`: in 100 dimensions, the centres of super classes have variance 100, the centres
of classes variance 10 around those, and items variance 1 around these. A hidden layer of 100 units and the experts
over it are trained from scratch on the classes alone; no target names its super class. The training differs from the
authors':

- Items are drawn anew for every batch; the authors draw 100 for each class.
- Rows are pruned once the task loss is under a threshold; the authors prune after 3 epochs.
- The expert lasso follows the paper's formula, not the code's.
- Adam's second moments decay by .95. With the authors' .999, copies that nobody needs shrink ten times slower.
- 100 experts come by mitosis: each of 10 experts becomes as many as its items have clusters, at most 12. The authors
  train 100 at once, which takes ten times the rows.
- For 100 x 100, batches are of 2,000 items, load is balanced in the first 200 steps of each stage alone, and rows are
  pruned from step 300 of a stage on.

"Super classes in one expert" counts the super classes that have all their classes in one expert, none in any other,
and all their test items routed there. Accuracy is on 4,000 test items. A step is a batch of 500 items unless the text
says otherwise.
"""
ABLATION_NOTE = """
What each loss does here: without the group lasso, copies stay in experts that do not need them. Without load balance,
some experts take several super classes, and others keep only the one row that no expert can lose. The expert lasso
changes nothing, since the group lasso alone removes every copy on data so well separated; the paper finds that the
expert lasso is needed.
"""
HIERARCHY_TABLE = (
    "| | experts | classes | rows of all experts | copies of a class | super classes in one expert | accuracy "
    "| times fewer multiply-adds | steps |\n|---|---|---|---|---|---|---|---|---|\n"
)


def train_or_load(setting: Setting, cache: Path, report: Progress) -> ExpertFigures:
    """One training, resumed or done."""
    cache.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(repr(setting).encode()).hexdigest()[:16]
    return train_hierarchy(setting, cache / f"{key}.pt", report)


def format_line(name: str, figures: ExpertFigures) -> str:
    """One row of the table."""
    experts, supers = figures.members.shape
    copies, settled_count = figures.rows / supers**2, int(figures.settled_supers().sum())
    return (
        f"| {name} | {experts} | {supers**2:,} | {figures.rows:,} | {copies:.2f} | {settled_count} of {supers} "
        f"| {figures.accuracy:.4f} | {figures.speedup:.2f} | {figures.steps:,} |\n"
    )


def require_convergence(name: str, figures: ExpertFigures) -> ExpertFigures:
    """`figures` itself; raises QualityError unless each super class ended in one expert."""
    spread = int((~figures.settled_supers()).sum())
    if spread:
        raise QualityError(f"{name}: {spread} super classes did not end in one expert: train for more steps")
    return figures


def make_page(cache: Path, *, full: bool) -> str:
    """The page; its pictures are written on the way."""
    torch.set_num_threads(1)  # the same sums everywhere
    with progress_bar("hierarchy") as report:
        return make_sections(cache, report, full=full)


def make_sections(cache: Path, report: Progress, *, full: bool) -> str:
    """Figure 3 and Figure A.1."""
    small = [
        require_convergence(f"10 x 10, seed {seed}", train_or_load(replace(SMALL_HIERARCHY, seed=seed), cache, report))
        for seed in SEEDS
    ]
    lines = [format_line(f"10 x 10, seed {seed}", figures) for seed, figures in zip(SEEDS, small, strict=True)]
    panels = {"10 x 10": small[0]}
    if full:
        panels["100 x 100"] = require_convergence("100 x 100", train_or_load(LARGE_HIERARCHY, cache, report))
        lines.append(format_line("100 x 100", panels["100 x 100"]))
    draw_experts(panels, PICTURES / "ds-synthetic.png")
    ablations = {name: train_or_load(setting, cache, report) for name, setting in ABLATIONS.items()}
    draw_experts(ablations, PICTURES / "ds-synthetic-ablations.png")
    parts = [
        HIERARCHY_INTRODUCTION,
        f"\n## Figure 3: each super class lives in one expert\n\n{HIERARCHY_TABLE}{''.join(lines)}",
        "\nThe command checks this: it fails where a super class has classes, or test items, in two experts.\n",
        "" if full else "\n100 x 100: not run (`FULL=1`).\n",
        "\n![classes of each expert](pictures/ds-synthetic.png)\n",
        f"\n## Figure A.1: what each loss is for (10 x 10, seed 0)\n\n{HIERARCHY_TABLE}",
        *(format_line(name, figures) for name, figures in ablations.items()),
        ABLATION_NOTE,
        "\n![classes of each expert, without one loss at a time](pictures/ds-synthetic-ablations.png)\n",
    ]
    return "".join(parts)


def main() -> int:
    parser = make_paper_parser(MODULE, __doc__)
    parser.add_argument("--full", action="store_true", help="100 x 100 too")
    args = parser.parse_args()
    return write_page(MODULE, "ds-softmax-synthetic.md", lambda: make_page(args.cache / "hierarchy", full=args.full))


if __name__ == "__main__":
    sys.exit(main())
