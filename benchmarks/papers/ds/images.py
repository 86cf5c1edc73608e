"""Doubly Sparse Softmax on a balanced image task, in place of its paper's CASIA: 3,755 characters drawn from fonts.

  python -m benchmarks.papers.ds.images            # dense, DS-2 and DS-8
  python -m benchmarks.papers.ds.images --full     # DS-4, DS-16, DS-32 and DS-64 too

Writes docs/ds-softmax-characters.md and its pictures. Needs Debian's CJK fonts; says which where they are absent.
Training leaves checkpoints below the cache and goes on from them.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from shortlist_exporter.commands.progress import progress_bar
from shortlist_models.ds.options import Examples, TrainingResult, TrainOptions
from shortlist_models.ds.training import train
from shortlist_models.progress import Progress
from torch import Tensor

from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.datasets.rendered.glyphs import draw_glyphs, find_faces, list_characters
from benchmarks.papers.common.command import PICTURES, make_paper_parser, write_page

from .character_pictures import draw_accuracy, draw_images
from .runs import target_speedup

MODULE = "ds.images"
PAPER_SPEEDUP, PAPER_LOSS = 6.91, 0.005
ACCURACY_DEPTHS = (1, 5, 10)
VALID_EACH = 3  # of the fit contexts, images of every character that are kept from training
DEFAULT_EXPERTS, ALL_EXPERTS = (2, 8), (2, 4, 8, 16, 32, 64)
CHARACTER_TRAINING = TrainOptions(
    rounds=1, final_rounds=0, tuning_rounds=3, round_steps=40, batch=256, expert_batch=128, learning_rate=3e-4,
    tuning_rate=3e-4, growth=1.2, threshold=7.0, ceiling=100.0, evidence=True,
)  # fmt: skip

CHARACTERS_INTRODUCTION = """# Doubly Sparse Softmax: a balanced task of 3,755 classes

Written by `make reproduce DATA=folder`; do not edit. This task stands in for CASIA's handwritten characters (3,740
classes), which are not available. It has the 3,755 characters of GB 2312's first level in ten faces of Debian's
fonts; each image is turned, sheared, scaled, shifted, bent, thickened or thinned, and has noise. A small
convolutional network (d = 128) is trained once on images of its own. Contexts are its features of other images: for
each character 17 to train heads on, 3 to choose by and 10 to test on. All characters are equally frequent, so that
nothing is gained by knowing the common ones.

![some of the images](pictures/characters.png)

Every head starts from the network's own layer and is trained in the same way (by Adam, with the same learning rate
and batch size). The dense head is trained for as many epochs as the longest of the others. A clone drops the classes
that the fewest of its contexts have among the dense softmax's best five (option `evidence`, which is not in the
paper), until DS-K is 6.91^(log2 K / 6) times as cheap as dense on train; 6.91 is the paper's figure for DS-64, and
each cloning contributes the same factor. Memory is not bounded, since the sets of characters overlap. Accuracy is on
{rows:,} test images; "times fewer" is |V| / (sum u_k |v_k| + K).

"""
CHARACTERS_TABLE = (
    "| | top-1 | top-5 | top-10 | times fewer multiply-adds | copies of a class | smallest, largest expert "
    "| peak memory over one dense | epochs | seconds |\n|---|---|---|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True)
class Row:
    """A head's figures. accuracy: by depth, on test. notices: what its training had to say."""

    name: str
    accuracy: tuple[float, ...]
    speedup: float
    trained: TrainingResult | None

    def line(self, classes: int) -> str:
        """As a row of the table."""
        shares = " | ".join(f"{share:.4f}" for share in self.accuracy)
        if self.trained is None:
            return f"| {self.name} | {shares} | 1 | 1 | {classes:,} | - | - | - |\n"
        module, history = self.trained.module, self.trained.history
        seconds = sum(record["seconds"] for record in history)
        memory = self.trained.peak_bytes / history[0]["dense_bytes"]
        return (
            f"| {self.name} | {shares} | {self.speedup:.2f} | {sum(module.sizes) / classes:.2f} "
            f"| {min(module.sizes):,}, {max(module.sizes):,} "
            f"| {memory:.2f} | {history[-1]['epoch']:.1f} | {seconds:.0f} |\n"
        )


def split_images(data: DataSet) -> tuple[Examples, Examples]:
    """Train and validation; images of a data set come character after character, again and again."""
    held_out_rows = VALID_EACH * data.dense.classes
    assert data.fit.targets is not None
    contexts, targets = torch.from_numpy(data.fit.contexts), torch.from_numpy(data.fit.targets)
    return Examples(contexts[:-held_out_rows], targets[:-held_out_rows]), Examples(
        contexts[-held_out_rows:], targets[-held_out_rows:]
    )


def make_options(experts: int) -> TrainOptions:
    """Training options for `experts`; the dense softmax, one expert, gets as many rounds as 64 experts do."""
    if experts == 1:
        stages = max(ALL_EXPERTS).bit_length() - 2
        return replace(
            CHARACTER_TRAINING,
            experts=1,
            final_rounds=CHARACTER_TRAINING.final_rounds + stages * CHARACTER_TRAINING.rounds,
        )
    return replace(CHARACTER_TRAINING, experts=experts, speedup=target_speedup(experts, PAPER_SPEEDUP))


def train_row(data: DataSet, experts: int, cache: Path, report: Progress) -> Row:
    """DS-`experts`, or for 1 the dense softmax retrained; from its checkpoint where there is one."""
    name = "dense, retrained" if experts == 1 else f"DS-{experts}"
    options = make_options(experts)
    key = hashlib.sha256(f"{data.fingerprint} {options}".encode()).hexdigest()[:16]
    training, validation = split_images(data)

    def show(stage: str, done: int, total: int) -> None:
        report(f"{name}: {stage}", done, total)

    trained = train(data.dense.module, training, validation, options, progress=show, checkpoint=cache / f"{key}.pt")
    contexts, targets = torch.from_numpy(data.test.contexts), list_test_targets(data)
    module = trained.module
    ids = module.topk(contexts, max(ACCURACY_DEPTHS))[0]
    return Row(name, measure_accuracies(ids, targets), module.speedup(module.utilization(contexts)), trained)


def list_test_targets(data: DataSet) -> Tensor:
    """The classes of the test contexts, [n]."""
    assert data.test.targets is not None
    return torch.from_numpy(data.test.targets)


def measure_accuracies(ids: Tensor, targets: Tensor) -> tuple[float, ...]:
    """Share of `targets` [n] among the first of `ids` [n, k], by depth."""
    same = ids == targets[:, None]
    return tuple(float(same[:, :depth].any(dim=1).float().mean()) for depth in ACCURACY_DEPTHS)


def make_page(cache: Path, experts: tuple[int, ...]) -> str:
    """The page; its pictures are written on the way."""
    with progress_bar("characters") as report:
        return make_table(cache, report, experts)


def make_table(cache: Path, report: Progress, experts: tuple[int, ...]) -> str:
    """Dense and every DS-K of `experts`."""
    data = DATASETS["characters"](Place(cache))
    glyphs = torch.from_numpy(draw_glyphs(find_faces(), list_characters()[::469]))
    draw_images(glyphs, PICTURES / "characters.png")
    dense_row = Row(
        "dense, the network's own",
        measure_accuracies(torch.from_numpy(data.test.ids), list_test_targets(data)),
        1.0,
        None,
    )
    checkpoints = cache / "characters" / "heads"
    checkpoints.mkdir(parents=True, exist_ok=True)
    rows = [dense_row, *(train_row(data, count, checkpoints, report) for count in (1, *experts))]
    points = [(row.name, row.speedup, row.accuracy[0]) for row in rows[2:]]
    draw_accuracy(points, rows[1].accuracy[0], PICTURES / "ds-characters.png")
    notices = sorted({notice for row in rows if row.trained for notice in row.trained.notices})
    parts = [
        CHARACTERS_INTRODUCTION.format(rows=len(data.test.contexts)),
        CHARACTERS_TABLE,
        *(row.line(data.dense.classes) for row in rows),
        "\nThe paper reports 90.1 % for DS-64 and 90.6 % for dense, at 6.91 times fewer multiply-adds. ",
        describe_verdict(rows),
        "" if experts == ALL_EXPERTS else "DS-4, DS-16, DS-32 and DS-64: not run (`FULL=1`).\n",
        "\n![accuracy against speed](pictures/ds-characters.png)\n",
        *(f"\n- {notice}" for notice in notices),
    ]
    return "".join(parts)


def describe_verdict(rows: list[Row]) -> str:
    """Whether any head of the table does as well as the paper's."""
    least = rows[1].accuracy[0] - PAPER_LOSS
    good = [row.name for row in rows if row.speedup >= PAPER_SPEEDUP and row.accuracy[0] >= least]
    if not good:
        return "No head here reaches that; [log](log/papers.md) says what was tried.\n"
    return f"Reached by {', '.join(good)}.\n"


def main() -> int:
    parser = make_paper_parser(MODULE, __doc__)
    parser.add_argument("--full", action="store_true", help="DS-4, DS-16, DS-32 and DS-64 too")
    args = parser.parse_args()
    return write_page(
        MODULE, "ds-softmax-characters.md", lambda: make_page(args.cache, ALL_EXPERTS if args.full else DEFAULT_EXPERTS)
    )


if __name__ == "__main__":
    sys.exit(main())
