"""Learning to Screen held against its paper (Chen et al., ICLR 2019) on Penn Treebank: Tables 1, 3, 4 and 5.

  python -m benchmarks.papers.l2s.reproduce --data DATA

Writes docs/l2s.md. Training leaves checkpoints below the cache and goes on from them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.bundle.reader import Bundle
from shortlist.evaluation.statistics import compute_precision
from shortlist.head import Head
from shortlist.plans.common.base import Routed
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_models.l2s.candidate_sets import BestClasses, ScreenOptions, choose_candidate_sets, find_best_classes
from shortlist_models.l2s.screened import ScreenedSoftmax
from shortlist_models.l2s.training import Screen, train_screen
from shortlist_models.progress import Progress
from shortlist_models.svd import weight_basis
from torch import Tensor

from benchmarks.common.dense import open_spellings
from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.papers.common.command import make_paper_parser, write_page
from benchmarks.papers.common.wall_times import WallTime

from .times import ONE_PROBE, time_with_numpy, time_with_onnx

LABEL_DEPTH = 5
THIRD_WORDS, WHOLE_WORDS = 310_000, 929_589  # words of train
TABLE_3_COST = 380  # clusters + candidates of Table 3: multiply-adds over d
TABLE_3_CLUSTERS = (50, 100, 200, 250)
TABLE_1_BUDGET = 255  # Table 1's screen is trained with it
SERVED_BUDGET, SECOND_PROBE = 278, 0.03  # the wall times' sets
TAIL_RANKS = (20, 50)
MODULE = "l2s.reproduce"

FIGURES_SECTION = """## Figures 2 to 7: precision against speed, with every other method

![P@1 against speed-up](pictures/ptb-p1.png)

![P@5 against speed-up](pictures/ptb-p5.png)

`make bench-page` draws these pictures ([benchmarks.md](benchmarks.md), Penn Treebank): the Pareto front of every
contender, L2S among them. The dense layer was timed in the same blocks.
"""
EXPORTED_NOTE = (
    "Measured on a bundle that `shortlist export` made of all of train; it fits the head on nine tenths of it.\n\n"
)
L2S_INTRODUCTION = """# Learning to Screen against its paper

Written by `make reproduce DATA=folder`; do not edit. `ptb` is the 2 x 200 LSTM of the data set (the paper's
PTB-Small: V = 10,000, d = 200). Screens are trained on contexts of the train split, on a third of them where a
section says nothing else, and measured on every context of the test split. P@k is the share of the exact k best
classes that are among the classes scored.

The set-up differs from the paper's. The paper's own LSTM is not available. Wall times are of one thread of this
machine, where a dense product is five to ten times faster than the paper's. PTB-Large (d = 1,500) was not run,
because the data hold no such model and there was no GPU to train one.

## What differs from the paper's algorithm

The rule that picks a cluster (equation 2), the Gumbel softmax (4, 5), the loss of an answer (6), lambda = 0.0003,
gamma = 10 and the greedy knapsack are the paper's. These things are not. Options are those of `shortlist export
--method l2s`, with their defaults ([methods.md](methods.md)); a value without an option is fixed in the code.

- **Adam, not plain SGD**, moves the screen's vectors. The paper gives no learning rate and no temperatures. Here
  `learning_rate` is 0.01, and training takes 5 `rounds` of 2 `epochs`, while the temperature of the Gumbel softmax
  falls from 1 to 0.1.
- **The vectors are scaled at the start.** Spherical k-means gives vectors of length 1. All of them are multiplied by
  one factor, so that the softmax over clusters gives the likeliest cluster a mean probability of 0.8. No context
  changes its cluster by that. The factor sets how strong the Gumbel noise is beside the scores when training begins.
- **The budget's weight depends on the batch.** The loss of a batch is the sum over its 1,024 contexts, and
  gamma = 10 (`gamma`) times the excess over the budget is added once a batch. So a context's loss weighs against
  gamma / 1,024, and a batch of another size would weigh the budget differently.
- **The sets' counts are smoothed.** The knapsack takes classes by the share of a cluster's contexts that have them
  among their best. Each cluster is given 5 contexts more (`smoothing`), in which every class is as frequent as among
  all contexts. Small clusters otherwise take classes that one or two contexts had by chance.
- **Background rows fill the sets.** `background` (12,000 by default, 0 in the tables of precision and perplexity
  below) is a number of contexts whose probabilities are averaged for each cluster: of the 1,000 likeliest classes of
  each, at temperature 2. These means then stand in place of the frequencies over all contexts in the smoothing, so
  that a class that was never among a cluster's best has a rank there, too. It is still taken only where its smoothed
  share is over lambda / (1 + lambda). The bundle of the wall times is exported with the default.
- **No set has fewer than `depth` classes** (5 by default, and here). Where the knapsack leaves a cluster fewer, it
  gets the `depth` classes that are most frequent there, even over the budget, so that every cluster can give a whole
  answer.
- **The normaliser has a constant a cluster.** Each cluster's mean of log(Z / Z of its set), over up to 20,000 contexts
  of the fit, is added to the logarithm of the set's own sum. The paper gives words outside the set probability 0 in
  beam search, or logits by a low-rank matrix (appendix A.3, option `tail_rank`, 0 by default). Ids do not change;
  Table 5 compares the normalisers.
- **The second probe** in the tables below (`second_probe`, 0 by default) opens one more cluster for the share of
  queries whose two best clusters are nearest to each other. The rows with 0 % follow the paper.
"""


@dataclass(frozen=True)
class Sample:
    """Contexts, their exact best five, and the gold next words."""

    contexts: Tensor
    labels: BestClasses
    targets: Tensor


def load_samples(data: DataSet, words: int, cache: Path, report: Progress) -> tuple[Sample, Sample]:
    """Fit rows (labels kept in the cache) and test rows."""
    labels_path = cache / f"labels-{words}.pt"
    fit = torch.from_numpy(data.fit.contexts)
    if not labels_path.is_file():
        torch.save(find_best_classes(data.dense.module, fit, LABEL_DEPTH, report).ids, labels_path)
    assert data.fit.targets is not None
    assert data.test.targets is not None
    labels = BestClasses(torch.load(labels_path, weights_only=True), data.dense.classes)
    test = BestClasses(torch.from_numpy(data.test.ids[:, :LABEL_DEPTH].copy()), data.dense.classes)
    test_rows = Sample(torch.from_numpy(data.test.contexts), test, torch.from_numpy(data.test.targets))
    return Sample(fit, labels, torch.from_numpy(data.fit.targets)), test_rows


@dataclass(frozen=True)
class ScreenFigures:
    """P@1, P@5, mean candidates, and how many times fewer multiply-adds than dense."""

    p1: float
    p5: float
    candidates: float
    fewer: float

    def cells(self) -> str:
        return f"{self.p1:.4f} | {self.p5:.4f} | {self.candidates:.0f} | {self.fewer:.1f}"


def measure_screen(screen: ScreenedSoftmax, test: Sample) -> ScreenFigures:
    """What a screen does on test, its second probes included."""
    scores = screen.scores(test.contexts)
    sets = torch.zeros(len(screen.sets), test.labels.classes, dtype=torch.bool)
    for row, ids in zip(sets, screen.sets, strict=True):
        row[ids] = True
    order = scores.topk(2, dim=1).indices
    second = (screen.margins(scores) < screen.probe_margin)[:, None]
    inside = sets[order[:, :1], test.labels.ids] | (sets[order[:, 1:], test.labels.ids] & second)
    overlap = sets.float() @ sets.float().T
    sizes = sets.sum(dim=1).float()
    extra_classes = (sizes[order[:, 1]] - overlap[order[:, 0], order[:, 1]]) * second[:, 0]
    mean = float((sizes[order[:, 0]] + extra_classes).mean())
    fewer = test.labels.classes / (len(screen.sets) + mean)
    return ScreenFigures(float(inside[:, 0].float().mean()), float(inside.float().mean()), mean, fewer)


def train_or_load(fit: Sample, options: ScreenOptions, cache: Path, report: Progress) -> Screen:
    """A screen, from its checkpoint where there is one."""
    name = f"l2s-{len(fit.contexts)}-{options.clusters}-{options.budget:g}-{options.rounds}.pt"
    return train_screen(fit.contexts, fit.labels, options, progress=report, checkpoint=cache / name)


def build_module(data: DataSet, screen: Screen, fit: Sample, second_probe: float = 0.0) -> ScreenedSoftmax:
    """The softmax behind a screen."""
    module = ScreenedSoftmax(data.dense.module, screen.vectors, screen.sets, 1, None)
    module.probe_margin = module.calibrate_margin(fit.contexts[:20_000], second_probe)
    return module


def make_table_3(data: DataSet, fit: Sample, test: Sample, cache: Path, report: Progress) -> str:
    """Numbers of clusters at equal cost, and each against its own start (Tables 3 and 4)."""
    lines = [
        "| r | start: P@1 | P@5 | candidates | times fewer | trained: P@1 | P@5 | candidates | times fewer "
        "| misses at 5, trained over start |\n|---|---|---|---|---|---|---|---|---|---|\n"
    ]
    for clusters in TABLE_3_CLUSTERS:
        options = ScreenOptions(clusters=clusters, budget=TABLE_3_COST - clusters)
        start = measure_screen(
            build_module(data, train_or_load(fit, replace(options, rounds=0), cache, report), fit), test
        )
        end = measure_screen(build_module(data, train_or_load(fit, options, cache, report), fit), test)
        misses = (1 - end.p5) / (1 - start.p5)
        lines.append(f"| {clusters} | {start.cells()} | {end.cells()} | {misses:.2f} |\n")
    return "".join(lines)


def make_table_1(data: DataSet, screen: Screen, fit: Sample, test: Sample) -> str:
    """P@1, P@5 and multiply-adds of budgets around the paper's row, one probe and a second one for small margins."""
    lines = ["| B | second probe | P@1 | P@5 | candidates | times fewer multiply-adds |\n|---|---|---|---|---|---|\n"]
    for budget in (100, 150, 200, TABLE_1_BUDGET, SERVED_BUDGET, 300, 400):
        options = ScreenOptions(clusters=len(screen.sets), budget=budget)
        sets = choose_candidate_sets(screen.assign(fit.contexts), fit.labels, options)
        for share in (0.0, SECOND_PROBE, 0.12):
            module = build_module(data, replace(screen, sets=sets), fit, share)
            lines.append(f"| {budget} | {share:.0%} of queries | {measure_screen(module, test).cells()} |\n")
    return "".join(lines)


def make_table_5(data: DataSet, screen: Screen, fit: Sample, test: Sample, rows: int = 8000) -> str:
    """Perplexity of the gold words: exact, with low-rank tails, and with one calibrated constant a cluster."""
    module = build_module(data, screen, fit)
    module.calibrate_tail(fit.contexts[:20_000])
    contexts, targets = test.contexts[:rows], test.targets[:rows, None]
    logits = module.dense.logits(contexts)
    inside = torch.zeros_like(logits, dtype=torch.bool)
    owners = module.scores(contexts).argmax(dim=1)
    for cluster, ids in enumerate(module.sets):
        inside[(owners == cluster).nonzero(), ids] = True
    of_set = logits.masked_fill(~inside, -torch.inf).logsumexp(dim=1, keepdim=True)
    lines = ["| normaliser and words outside the set | perplexity |\n|---|---|\n"]

    def add(name: str, logprobs: Tensor) -> None:
        lines.append(f"| {name} | {float((-logprobs.mean()).exp()):.2f} |\n")

    add("exact softmax", logits.log_softmax(dim=1).gather(1, targets))
    constant = logits.gather(1, targets) - of_set - module.tail[owners][:, None]
    add("a constant a cluster, calibrated; words scored exactly (what is served)", constant)
    bias = module.dense.bias
    assert bias is not None
    for rank in TAIL_RANKS:
        basis = weight_basis(module.dense.weight, rank)
        rest = module.dense.finish(contexts @ basis.projection @ basis.preview.T + bias)
        mixture = torch.where(inside, logits, rest).log_softmax(dim=1)
        add(f"low-rank tail, rank {rank} (paper, A.3)", mixture.gather(1, targets))
    missing = float((~inside.gather(1, targets)).float().mean())
    outside = f"\n{missing:.2%} of the gold words lie outside the set: without a tail they have probability 0.\n"
    return "".join(lines) + outside


def export_head(data: DataSet, cache: Path) -> Head:
    """Table 1's head as a bundle, by the exporter's own command."""
    out = cache / f"l2s-bundle-{FORMAT_VERSION}" / "1"
    if not out.is_dir():
        options = {"clusters": "100", "budget": str(SERVED_BUDGET), "second_probe": str(SECOND_PROBE)}
        with progress_bar("export") as report:
            export(data.dense, data.fit, out, Request("l2s", options, fallback=False, threads=1), report)
    return Head(Bundle(out, verify=False), "cpu", 1)


def make_wall_table(data: DataSet, cache: Path, screen: Screen) -> str:
    """Wall times at batch 1: through ONNX Runtime, and numpy against numpy as in the paper."""
    head = export_head(data, cache)
    single = head.with_settings(probe_margin=0.0)
    rows = data.test.contexts[:4000]
    dense = open_spellings(data.dense, cache / "dense", 1)
    heads = {ONE_PROBE: single, f"a second probe for {SECOND_PROBE:.0%}": head}
    sentences = [describe_head(name, one, data) for name, one in heads.items()]
    times: list[WallTime] = time_with_onnx(dense, heads, rows)
    times += time_with_numpy(data.dense, screen.vectors, screen.sets, rows)
    lines = ["| | us, mean | median | p99 | times as fast as dense |\n|---|---|---|---|---|\n"]
    lines += [f"| {w.name} | {w.mean:.1f} | {w.median:.1f} | {w.p99:.1f} | {w.speedup:.2f} |\n" for w in times]
    return "".join([*sentences, "\n", *lines])


def describe_head(name: str, head: Head, data: DataSet) -> str:
    """What the bundle's own answers to all of test are worth."""
    top = head.topk_by_plan(data.test.contexts, LABEL_DEPTH)
    p1, p5 = (compute_precision(top.ids, data.test.best, k) for k in (1, LABEL_DEPTH))
    candidates = float(top.scored.mean())
    assert isinstance(head.plan, Routed)
    fewer = data.dense.classes / (len(head.plan.list_parts()) + candidates)
    cost = f"{candidates:.0f} candidates, {fewer:.1f} times fewer multiply-adds"
    return f"As served, {name}: P@1 {p1:.4f}, P@5 {p5:.4f}, {cost}.\n\n"


def make_page(folder: Path, root: Path) -> str:
    """The whole page; what several tables need is computed first."""
    cache = root / "ptb"
    with progress_bar("Learning to Screen") as report:
        whole = DATASETS["ptb"](Place(root, folder, options={"words": str(WHOLE_WORDS)}))
        fit, test = load_samples(whole, WHOLE_WORDS, cache, report)
        screen = train_or_load(fit, ScreenOptions(clusters=100, budget=TABLE_1_BUDGET), cache, report)
        first = make_table_1(whole, screen, fit, test)
        fifth = make_table_5(whole, screen, fit, test)
        wall = make_wall_table(whole, cache, screen)
        data = DATASETS["ptb"](Place(root, folder, options={"words": str(THIRD_WORDS)}))
        third = make_table_3(data, *load_samples(data, THIRD_WORDS, cache, report), cache, report)
    return (
        f"{L2S_INTRODUCTION}\n## Table 1: precision against cost, r = 100, all of train\n\n{first}\n"
        "The paper's row: P@1 .998, P@5 .990 at 10.6 times the speed of dense.\n"
        f"\n## Wall time, batch 1, one thread, B = {SERVED_BUDGET}\n\n{EXPORTED_NOTE}{wall}\n"
        f"\n## Tables 3 and 4: clusters at equal cost, and training against the k-means start\n\n{third}\n"
        f"\n{FIGURES_SECTION}\n## Table 5: perplexity\n\n{fifth}"
    )


def main() -> int:
    args = make_paper_parser(MODULE, __doc__, data="ptb/").parse_args()
    return write_page(MODULE, "l2s.md", lambda: make_page(args.data, args.cache))


if __name__ == "__main__":
    sys.exit(main())
