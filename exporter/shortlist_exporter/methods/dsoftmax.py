"""Method `dsoftmax`: a differentiated softmax, trained here or brought along; plan `adaptive` without tails."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy.typing as npt
import torch
from pydantic import Field
from shortlist.bundle.manifest import Normalizer
from shortlist.errors import BadInput
from shortlist_models.adaptive.cutoffs import min_coverage, smooth_shares
from shortlist_models.adaptive.dsoftmax import DSoftmax
from shortlist_models.adaptive.softmax import order_by_frequency
from shortlist_models.adaptive.training import TrainOptions, train_head
from torch import Tensor

from shortlist_exporter.core.types import Cost, Progress, quiet
from shortlist_exporter.graphs.adaptive.parts import index_of, write_buckets
from shortlist_exporter.inputs.sources import Contexts, Dense

from .adaptive import check_shape, never, one_sentence, pair_of, parsed_numbers
from .base import Fitted, Options, parsed

BUCKETS = 3
NARROWER = 4


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


class DsoftmaxMethod:
    """See `shortlist_models.adaptive.dsoftmax` for the algorithm and its source."""

    plan: ClassVar[str] = "adaptive"
    reference: ClassVar[Literal["dense", "self"]] = "self"
    normalizer: ClassVar[Normalizer] = "exact"

    def learn(
        self, dense: Dense, examples: Contexts, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Classes by falling frequency in the targets, then training; raises BadInput."""
        chosen = parsed(DsoftmaxOptions, options)
        contexts, targets = pair_of(examples, dense)
        order = order_by_frequency(targets, dense.classes)
        cutoffs = cutoffs_of(chosen, torch.bincount(targets, minlength=dense.classes)[order])
        with one_sentence():
            torch.manual_seed(seed)
            widths = widths_of(chosen, dense.dim, len(cutoffs) + 1)
            module = DSoftmax(dense.dim, dense.classes, cutoffs, widths, order, project=chosen.project)
        train = TrainOptions(chosen.epochs, chosen.batch, chosen.learning_rate, seed)
        path = Path(chosen.checkpoint) if chosen.checkpoint else None
        history = train_head(module, module, contexts, targets, train, progress, path)
        return finished(module, chosen, {"history": history, "never": never(targets, dense.classes)})

    def restore(self, dense: Dense, state: dict[str, Tensor], examples: Contexts, options: dict[str, str]) -> Fitted:
        """The state dict of `DSoftmax`."""
        del examples
        chosen = parsed(DsoftmaxOptions, options)
        with one_sentence():
            module = DSoftmax.from_state(state)
        check_shape((len(module.order), module.dim), dense)
        return finished(module, chosen, {})

    def graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> dict[str, str]:
        """head.onnx, see `adaptive_graphs`."""
        del dense
        assert isinstance(fitted.module, DSoftmax)
        return {"head": write_buckets(folder, fitted.module)}

    def index(self, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
        """See Written.index."""
        assert isinstance(fitted.module, DSoftmax)
        return index_of([fitted.module.order])


def cutoffs_of(options: DsoftmaxOptions, counts: Tensor) -> list[int]:
    """Those given, or where the adaptive softmax' tails might begin at the earliest."""
    if options.cutoffs:
        return parsed_numbers("cutoffs", options.cutoffs)
    covered = smooth_shares(counts).cumsum(0)
    found = {int((covered < min_coverage(bucket, NARROWER)).sum()) + 1 for bucket in range(BUCKETS - 1)}
    cutoffs = sorted(found - {len(counts)})
    if not cutoffs:
        raise BadInput(f"{len(counts)} classes are too few to tell frequent from rare: choose --set cutoffs=...")
    return cutoffs


def widths_of(options: DsoftmaxOptions, dim: int, buckets: int) -> list[int]:
    """Those given, or d, d/4, d/16, ..."""
    if options.widths:
        return parsed_numbers("widths", options.widths)
    return [dim // NARROWER**bucket for bucket in range(buckets)]


def finished(module: DSoftmax, options: DsoftmaxOptions, said: dict[str, Any]) -> Fitted:
    """What the manifest says."""
    macs = module.count_multiply_adds() / (module.dim * len(module.order))
    said |= options.model_dump(exclude={"checkpoint", "cutoffs", "widths"})
    said |= {"cutoffs": module.cutoffs[:-1], "widths": module.widths}
    notes = (f"{said['never']} classes never occur in the targets: they rank last",) if said.get("never") else ()
    return Fitted(module, Cost(macs=macs, bytes=macs), said, notes)
