"""The tables of the page of Doubly Sparse Softmax: heads measured on test, and their trainings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from shortlist_exporter.graphs.gate.int8 import round_rows
from shortlist_exporter.inputs.sources import Contexts
from shortlist_models import FullSoftmax
from shortlist_models.ds.softmax import DSSoftmax

from .runs import Head, Text, find_best_classes

PAPER_ROWS = """
The paper's rows: dense .252 / .436 / .515; DS-64 .259 / .450 / .529 at 15.99 times; DS-64* top-1 .258 at 34.78 times.
"""


@dataclass(frozen=True)
class Row:
    """A line of Table 1: hits of targets at 1, 5, 10 on every test row, and what an answer costs."""

    name: str
    hits: npt.NDArray[np.bool_]
    fewer: float
    copies: float

    def cells(self, beside: Row | None) -> str:
        """As table cells, with the paired difference of top-1 to another row."""
        top = " | ".join(f"{share:.4f}" for share in self.hits.mean(axis=0))
        return f"{self.name} | {top} | {self.fewer:.2f} | {self.copies:.2f} | {format_difference(self, beside)}"


def format_difference(row: Row, beside: Row | None) -> str:
    """Paired difference of top-1 with its 95 % interval."""
    if beside is None or beside is row:
        return ""
    gap = row.hits[:, 0].astype(np.float64) - beside.hits[:, 0]
    half = 1.96 * gap.std() / np.sqrt(len(gap))
    return f"{gap.mean():+.4f} +- {half:.4f}"


def measure_row(name: str, module: DSSoftmax | FullSoftmax, test: Contexts) -> Row:
    """The row of a head, measured on test."""
    assert test.targets is not None
    contexts, targets = torch.from_numpy(test.contexts), torch.from_numpy(test.targets)[:, None]
    same = find_best_classes(module, contexts) == targets
    hits = torch.stack([same[:, :k].any(dim=1) for k in (1, 5, 10)], dim=1).numpy()
    if isinstance(module, FullSoftmax) or module.experts == 1:
        return Row(name, hits, 1.0, 1.0)
    return Row(name, hits, module.speedup(module.utilization(contexts)), len(module.ids) / module.classes)


def make_table_1(text: Text, heads: list[Head]) -> tuple[str, list[Row]]:
    """Every head that is there, held against dense retrained; `heads` as `sort_heads` gives them."""
    rows = [measure_row("dense, the base model's", text.softmax, text.test)]
    dense = [head for head in heads if head.experts == 1]
    rows += [measure_row(f"dense retrained, {describe_training(head)}", head.module, text.test) for head in dense]
    beside, sparse = rows[-1], [head for head in heads if head.experts > 1]
    rows += [measure_row(f"{head.label}, {describe_training(head)}", head.module, text.test) for head in sparse]
    judged_heads = {head.label: head for head in sparse if head.experts == sparse[-1].experts}.values()
    rows += [measure_row(f"{head.label} in int8", round_rows(head.module), text.test) for head in judged_heads]
    titles = "| head | top-1 | top-5 | top-10 | times fewer | copies | top-1 over the last dense |\n"
    lines = [titles, "|---|---|---|---|---|---|---|\n"]
    lines += [f"| {row.cells(beside)} |\n" for row in rows]
    return "".join(lines) + PAPER_ROWS, rows


def describe_training(head: Head) -> str:
    """Learning rate, epochs and seconds."""
    return f"rate {head.rate:g}, {head.history[-1]['epoch']:.1f} epochs, {head.seconds:.0f} s"


def format_table_d1(head: Head) -> str:
    """Accuracy at every cloning, and the memory there."""
    lines = [
        "| experts | epoch | top-1 on valid | copies | classes an expert | experts in use | memory, dense = 1 |\n"
        "|---|---|---|---|---|---|---|\n"
    ]
    ends = [(one, two) for one, two in zip(head.history, [*head.history[1:], None], strict=True)]
    for record in [one for one, two in ends if two is None or two["experts"] != one["experts"]]:
        copies = sum(record["sizes"]) / 10_000
        lines.append(
            f"| {record['experts']} | {record['epoch']:.2f} | {record['top1']:.4f} | {copies:.2f} | "
            f"{min(record['sizes'])} to {max(record['sizes'])} | {record['effective_experts']:.1f} | "
            f"{record['bytes'] / record['dense_bytes']:.2f} |\n"
        )
    peak = head.peak_bytes / head.history[0]["dense_bytes"]
    return "".join(lines) + (
        f"\nThe peak memory of weights, gradients and Adam's moments was {peak:.2f} times that of a dense softmax, "
        f"which takes {head.history[0]['dense_bytes'] / 1e6:.1f} MB (target: at most 3.25 times).\n"
    )


def make_lasso_table(text: Text, dense: Head, pairs: list[tuple[Head, Head | None]]) -> str:
    """Heads pruned by lassos alone beside dense retrained, each after the head with evidence where there is one.

    pairs: by lassos alone, with evidence.
    """
    lines = [
        "| head | top-1 | top-5 | top-10 | times fewer | copies | epochs | seconds | top-1 over dense retrained |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
    ]
    beside = measure_row("dense retrained", dense.module, text.test)
    lines.append(format_lasso_row(beside, dense, None))
    for lassos, evidence in pairs:
        if evidence is not None:
            row = measure_row(f"{evidence.label}, evidence", evidence.module, text.test)
            lines.append(format_lasso_row(row, evidence, beside))
        row = measure_row(f"{lassos.label}, lassos alone", lassos.module, text.test)
        lines.append(format_lasso_row(row, lassos, beside))
    return "".join(lines)


def format_lasso_row(row: Row, head: Head, beside: Row | None) -> str:
    """A line of `make_lasso_table`: the row's cells, and how long the head was trained."""
    *cells, difference = row.cells(beside).split(" | ")
    cells += [f"{head.history[-1]['epoch']:.1f}", f"{head.seconds:.0f}", difference]
    return f"| {' | '.join(cells)} |\n"
