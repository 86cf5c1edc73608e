"""Method `dsoftmax`: a differentiated softmax, trained here or brought along; plan `adaptive` without tails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from pydantic import Field
from shortlist.bundle.settings import AdaptiveSettings
from shortlist.errors import BadInput
from shortlist_models.adaptive.cutoffs import min_coverage, smooth_shares
from shortlist_models.adaptive.dsoftmax import DSoftmax
from torch import Tensor

from shortlist_exporter.core.types import Cost, Progress, quiet
from shortlist_exporter.graphs.adaptive.parts import make_index, write_buckets
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.inputs.sources import Contexts, Dense

from .base import Fitted, Options, TrainedMethod, parse_options
from .supervised import (
    check_layer_shape,
    note_absent_classes,
    parse_numbers,
    rank_examples,
    train_module,
    translate_errors,
)

DEFAULT_BUCKETS = 3
WIDTH_DIVISOR = 4


class DsoftmaxOptions(Options):
    """`--set` options of method dsoftmax. The defaults are the adaptive softmax's rule of coverage and of widths."""

    cutoffs: str = Field(default="", description="ranks by frequency at which buckets begin, as 2000,6000")
    widths: str = Field(default="", description="of every bucket, falling, as 200,50,12; d, d/4, d/16 by default")
    project: bool = Field(
        default=True, description="learn the turn that cuts contexts into parts; false: widths sum to d"
    )
    epochs: int = Field(default=4, ge=1)
    batch: int = Field(default=512, ge=1)
    learning_rate: float = Field(default=0.003, gt=0)
    checkpoint: str = Field(default="", description="file that training resumes from")


class DsoftmaxMethod(TrainedMethod):
    """A differentiated softmax; `shortlist_models.adaptive.dsoftmax` has the algorithm and its source."""

    plan = "adaptive"

    def learn(
        self, dense: Dense, examples: Contexts, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Order classes by falling frequency in the targets, then train; raises BadInput."""
        method_options = parse_options(DsoftmaxOptions, options)
        ranked = rank_examples(examples, dense)
        cutoffs = choose_cutoffs(method_options, ranked.counts)
        with translate_errors():
            torch.manual_seed(seed)
            widths = choose_widths(method_options, dense.dim, len(cutoffs) + 1)
            module = DSoftmax(dense.dim, dense.classes, cutoffs, widths, ranked.order, project=method_options.project)
        result = train_module(module, module, ranked, method_options, seed, progress)
        return make_fitted(module, method_options, result)

    def restore(self, dense: Dense, state: dict[str, Tensor], examples: Contexts, options: dict[str, str]) -> Fitted:
        """Restore from the state dict of a `DSoftmax`."""
        del examples
        method_options = parse_options(DsoftmaxOptions, options)
        with translate_errors():
            module = DSoftmax.from_state(state)
        check_layer_shape((len(module.order), module.dim), dense)
        return make_fitted(module, method_options, {})

    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        del dense
        assert isinstance(fitted.module, DSoftmax)
        return GraphFiles({"head": write_buckets(folder, fitted.module)})

    def make_index(self, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
        assert isinstance(fitted.module, DSoftmax)
        return make_index([fitted.module.order])


def choose_cutoffs(options: DsoftmaxOptions, counts: Tensor) -> list[int]:
    """The cutoffs of the options, or where the tails of an adaptive softmax may begin at the earliest."""
    if options.cutoffs:
        return parse_numbers("cutoffs", options.cutoffs)
    covered = smooth_shares(counts).cumsum(0)
    first_cutoffs = {
        int((covered < min_coverage(bucket, WIDTH_DIVISOR)).sum()) + 1 for bucket in range(DEFAULT_BUCKETS - 1)
    }
    cutoffs = sorted(first_cutoffs - {len(counts)})
    if not cutoffs:
        raise BadInput(f"{len(counts)} classes are too few to tell frequent from rare: choose --set cutoffs=...")
    return cutoffs


def choose_widths(options: DsoftmaxOptions, dim: int, buckets: int) -> list[int]:
    """The widths of the options, or d, d/4, d/16, ..., 1 at least."""
    if options.widths:
        return parse_numbers("widths", options.widths)
    return [max(1, dim // WIDTH_DIVISOR**bucket) for bucket in range(buckets)]


def make_fitted(module: DSoftmax, options: DsoftmaxOptions, fit: dict[str, Any]) -> Fitted:
    """The fitted head with its cost."""
    macs = module.count_multiply_adds() / (module.dim * len(module.order))
    fit |= options.model_dump(exclude={"checkpoint", "cutoffs", "widths"})
    project = module.projection is not None
    fit |= {"cutoffs": module.cutoffs[:-1], "widths": module.widths, "project": project}
    return Fitted(module, Cost(macs=macs, bytes=macs), AdaptiveSettings(), fit, note_absent_classes(fit))
