"""Heads of every method, exported cheaply, and opened with several threads, with compiled loops and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from shortlist.bundle.reader import Bundle
from shortlist.head import Head
from shortlist.kernels.dense_rows import CompiledRanking
from shortlist.kernels.exact_rows import CompiledGather
from shortlist.kernels.grouped.runner import CompiledSearch
from shortlist.kernels.mixture import CompiledFront
from shortlist.kernels.proofs import CompiledProofs
from shortlist.kernels.screen import GateLoops, ScreenLoops
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.graphs import builder, certificate
from shortlist_exporter.inputs.sources import Dense
from shortlist_models.adaptive.dsoftmax import DSoftmax
from shortlist_models.adaptive.softmax import AdaptiveSoftmax
from shortlist_models.ds.softmax import DSSoftmax
from shortlist_models.mixtures.mixtape import Mixtape
from torch import nn

from .layers import Generator, Layer

LOOPS = (CompiledFront, CompiledGather, CompiledProofs, CompiledRanking, CompiledSearch, GateLoops, ScreenLoops)
VARIANTS = ((1, True), (2, True), (4, True), (1, False), (4, False))  # threads, and whether loops may be used
EXPERTS = 4
MIXTURES = ((2, True), (4, True), (8, True), (1, False), (3, False))  # components, whether sigmoids are in a tree
GATE_WIDTH = 5
INLINE_BYTES = 128  # larger tensors are in files
TRAINING = {"clusters": "6", "rounds": "1", "epochs": "1", "background": "100", "depth": "3"}


def choose_width(dense: Dense, share: float) -> str:
    """A width of so large a share of d, at least 1."""
    return str(max(1, int(dense.dim * share)))


def choose_grouped(dense: Dense, int8_share: float) -> dict[str, str]:
    """Options of method grouped with few candidates, and this share of columns in int8."""
    real = dense.classes - dense.padded.size
    few = max(7, real // 10)
    sizes = {"candidates": few, "previewed": max(few, real // 3), "groups": max(1, real // 20)}
    width = max(4, int(dense.dim * 0.6))
    return {name: str(size) for name, size in sizes.items()} | {
        "width": str(width),
        "int8_width": str(max(1, int(width * int8_share))),
    }


def choose_screen(dense: Dense, **options: str) -> dict[str, str]:
    """Options of method l2s with small candidate sets."""
    return TRAINING | {"budget": str(max(4, dense.classes // 8))} | options


def make_experts(random: Generator, dense: Dense) -> nn.Module:
    """A Doubly Sparse Softmax whose experts hold rows of the layer."""
    sizes = random.integers(1, dense.classes + 1, size=EXPERTS)
    ids = [np.sort(random.permutation(dense.classes)[:size]) for size in sizes]
    bias = np.zeros(dense.classes, np.float32) if dense.bias is None else dense.bias
    gate = random.standard_normal((EXPERTS, dense.dim)).astype(np.float32)
    rows = np.concatenate(ids)
    parts = [torch.from_numpy(part) for part in ids]
    return DSSoftmax(
        torch.from_numpy(dense.weight[rows]), torch.from_numpy(bias[rows]), torch.from_numpy(gate), parts, dense.classes
    )


def choose_cuts(random: Generator, classes: int) -> list[int]:
    """Where the two parts after the first begin."""
    return sorted((1 + random.permutation(classes - 1)[:2]).tolist())


def draw_matrix(random: Generator, height: int, width: int) -> torch.Tensor:
    """A random projection [height, width]."""
    return torch.from_numpy((random.standard_normal((height, width)) / width**0.5).astype(np.float32))


def make_tails(random: Generator, dense: Dense) -> nn.Module:
    """An adaptive softmax with a head and two tails whose rows begin as those of the layer do."""
    order, cuts = random.permutation(dense.classes), choose_cuts(random, dense.classes)
    sections = [torch.from_numpy(dense.weight[ids]) for ids in np.split(order, cuts)]
    clusters = draw_matrix(random, 2, dense.dim)
    state = {"order": torch.from_numpy(order), "head.weight": torch.cat([sections[0], clusters])}
    if dense.bias is not None:
        state["head.bias"] = torch.from_numpy(np.append(dense.bias[order[: cuts[0]]], np.zeros(2, np.float32)))
    for tail, rows in enumerate(sections[1:]):
        width = max(1, dense.dim // 2 ** (tail + 1))
        state[f"tail.{tail}.0.weight"] = draw_matrix(random, width, dense.dim)
        state[f"tail.{tail}.1.weight"] = rows[:, :width].contiguous()
    return AdaptiveSoftmax.from_state(state)


def make_buckets(random: Generator, dense: Dense) -> nn.Module:
    """A differentiated softmax of three buckets whose rows begin as those of the layer do."""
    order, cuts = random.permutation(dense.classes), choose_cuts(random, dense.classes)
    widths = [max(1, dense.dim // divisor) for divisor in (1, 2, 4)]
    bias = np.zeros(dense.classes, np.float32) if dense.bias is None else dense.bias[order]
    state = {"order": torch.from_numpy(order), "bias": torch.from_numpy(bias)}
    state["projection.weight"] = draw_matrix(random, sum(widths), dense.dim)
    for bucket, (ids, width) in enumerate(zip(np.split(order, cuts), widths, strict=True)):
        state[f"weights.{bucket}"] = torch.from_numpy(np.ascontiguousarray(dense.weight[ids, :width]))
    return DSoftmax.from_state(state)


def choose_mixture(dense: Dense) -> dict[str, str]:
    """Options of method mixtape with few candidates among the rare classes."""
    few = max(7, dense.classes // 10)
    return {"candidates": str(few), "previewed": str(max(few, dense.classes // 3))}


def make_mixture(random: Generator, dense: Dense) -> nn.Module:
    """A Mixtape whose rows are those of the layer. A context of zeros has components of zeros, and no rounding."""
    components, tree = MIXTURES[int(random.integers(len(MIXTURES)))]
    frequent = int(random.integers(1, max(2, (dense.classes - 7) // 2)))
    order = torch.from_numpy(random.permutation(dense.classes))
    module = Mixtape(dense.dim, dense.classes, components, frequent, GATE_WIDTH, order, tree=tree)
    bias = np.zeros(dense.classes, np.float32) if dense.bias is None else dense.bias
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(dense.weight)[order])
        module.bias.copy_(torch.from_numpy(bias)[order])
        module.hidden.bias.zero_()
    return module.eval()


@dataclass(frozen=True)
class Form:
    """A method with options for a layer. module: makes a head of its own in the place of training, where it has one."""

    method: str
    options: Callable[[Dense], dict[str, str]] = field(default=lambda _: {})
    module: Callable[[Generator, Dense], nn.Module] | None = None


FORMS: dict[str, Form] = {
    "full": Form("full"),
    "svd": Form("svd", lambda dense: {"width": choose_width(dense, 0.3)}),
    "svd int8": Form("svd", lambda dense: {"width": choose_width(dense, 0.5), "preview": "int8"}),
    "svd context": Form("svd", lambda dense: {"basis": "context", "width": choose_width(dense, 0.5)}),
    "svd context fp32": Form("svd", lambda _: {"basis": "context", "preview": "fp32"}),
    "cascade": Form("cascade", lambda _: {"full_view": "7"}),
    "grouped": Form("grouped", lambda dense: choose_grouped(dense, 0.4)),
    "grouped int8": Form("grouped", lambda dense: choose_grouped(dense, 1.0)),
    "l2s": Form("l2s", choose_screen),
    "l2s two probes": Form("l2s", lambda dense: choose_screen(dense, probes="2")),
    "l2s second probe": Form("l2s", lambda dense: choose_screen(dense, second_probe="0.3")),
    "l2s fallback": Form("l2s", lambda dense: choose_screen(dense, fallback="0.3")),
    "l2s second stage": Form(
        "l2s", lambda dense: choose_screen(dense, second_stage="int8", width=choose_width(dense, 0.5))
    ),
    "l2s low rank": Form("l2s", lambda dense: choose_screen(dense, tail_rank=str(min(3, dense.dim)))),
    "ds": Form("ds", module=make_experts),
    "ds int8": Form("ds", lambda _: {"int8": "true"}, make_experts),
    "ds-svd": Form("ds-svd", lambda dense: {"over": "8", "width": choose_width(dense, 0.4)}, make_experts),
    "adaptive": Form("adaptive", module=make_tails),
    "adaptive previews": Form("adaptive", lambda _: {"preview": "1", "full_view": "6"}, make_tails),
    "dsoftmax": Form("dsoftmax", module=make_buckets),
    "mixtape": Form("mixtape", choose_mixture, make_mixture),
}


@dataclass(frozen=True)
class Case:
    """A head of one form over one layer, opened in every variant. heads: by name; the first is `1 thread`."""

    form: str
    layer: Layer
    module: nn.Module | None
    heads: dict[str, Head]

    @property
    def base(self) -> Head:
        return next(iter(self.heads.values()))


def make_case(random: Generator, name: str, layer: Layer, folder: Path) -> Case:
    """Export a head of this form into `folder` and open it in every variant; raises ShortlistError."""
    form, dense = FORMS[name], layer.dense
    if form.module is not None:  # heads of their own have no soft-cap, scale or padding
        dense = Dense(dense.weight, dense.bias)
    module = None if form.module is None else form.module(random, dense)
    request = Request(
        form.method,
        form.options(dense),
        head=module,
        threads=1,
        fallback=bool(random.random() < 0.3),
        keep_dense=form.method == "full" or bool(random.random() < 0.85),
        certificate=bool(random.random() < 0.8),
    )
    # Small layers are proved too, and most have files of their weights, which proofs and loops read, as large ones have
    inline = INLINE_BYTES if random.random() < 0.8 else builder.INLINE_BYTES
    with patch.object(certificate, "MIN_WEIGHTS", 0), patch.object(builder, "INLINE_BYTES", inline):
        export(dense, layer.fit, folder / "lm" / "1", request)
    return Case(name, layer, module, dict(open_variants(folder / "lm" / "1")))


def open_variants(folder: Path) -> Iterator[tuple[str, Head]]:
    """Open the bundle once for each number of threads, with loops and without."""
    for threads, loops in VARIANTS:
        name = f"{threads} thread{'s' * (threads > 1)}{'' if loops else ', no loops'}"
        with ExitStack() if loops else hide_loops():
            yield name, Head(Bundle(folder, verify=False), "cpu", threads)


@contextmanager
def hide_loops() -> Iterator[None]:
    """As where the processor or the bundle has not what loops need: graphs answer in their place."""
    with ExitStack() as stack:
        for loops in LOOPS:
            stack.enter_context(patch.object(loops, "open", return_value=None))
        yield
