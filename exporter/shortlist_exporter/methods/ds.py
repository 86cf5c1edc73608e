"""Method `ds`: Doubly Sparse Softmax; plan `gated`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from shortlist.bundle.settings import GatedSettings
from shortlist.errors import BadInput
from shortlist_models import FullSoftmax
from shortlist_models.ds.options import Examples, TrainingResult, TrainOptions, make_dense_options
from shortlist_models.ds.softmax import DSOptions, DSSoftmax
from shortlist_models.ds.training import train

from shortlist_exporter.core.types import Cost, Progress, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.gate.experts import write_graphs
from shortlist_exporter.graphs.gate.int8 import round_rows
from shortlist_exporter.inputs.sources import Contexts, Dense

from .base import Fitted, Options, TrainedMethod, parse_options
from .supervised import translate_errors

VALIDATION_SHARE = 10  # one row in ten decides when the lasso has grown enough
MAX_VALIDATION_ROWS = 5000
MAX_BIAS = 1e15  # in size
HISTORY_FIELDS = ("experts", "epoch", "lasso", "top1", "speedup", "bytes")  # of every round, in the manifest


class DsOptions(Options):
    """`--set` options of method ds. gamma and load are the paper's, the others as on docs/ds-softmax.md.

    `shortlist_models.ds.options` says what training does with each.
    """

    experts: int = Field(default=64, ge=1, description="K, a power of two with mitosis")
    mitosis: bool = Field(default=True, description="2 -> 4 -> ... -> K; false: K experts from the start")
    keep_one: bool = Field(default=True, description="at least one copy of every class; false: the starred rows")
    load: float = Field(default=10.0, ge=0)
    gamma: float = Field(default=0.01, ge=0, description="rows of a smaller root mean square are pruned")
    expert_group: Literal["expert", "class"] = Field(default="expert", description="groups of the expert lasso")
    lasso: float = Field(default=TrainOptions.lasso, ge=0, description="first coefficient of both lassos")
    growth: float = Field(default=TrainOptions.growth, ge=1)
    tolerance: float = Field(default=TrainOptions.tolerance, ge=0, description="fall in accuracy that ends the growth")
    speedup: float | None = Field(default=None, gt=1, description="times fewer multiply-adds that end the growth")
    threshold: float | None = Field(default=None, gt=0, description="task loss under which rows are pruned, nats")
    rounds: int = Field(default=1, ge=1, description="of every stage; without evidence some epochs are needed")
    final_rounds: int = Field(default=0, ge=0, description="of the last stage instead")
    tuning_rounds: int = Field(default=6, ge=0, description="at last, without lasso")
    round_steps: int = Field(default=60, ge=1)
    expert_batch: int = Field(default=TrainOptions.expert_batch, ge=1)
    batch: int = Field(default=TrainOptions.batch, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0)
    tuning_rate: float = Field(default=1e-4, gt=0, description="learning rate of the tuning rounds")
    evidence: bool = Field(default=True, description="clone only the classes that a clone's contexts want")
    noise: float = Field(default=TrainOptions.noise, ge=0, description="of the gates of clones")
    int8: bool = Field(default=False, description="round rows to int8: single rows read a quarter of the bytes")
    retrain: bool = Field(default=False, description="train a dense softmax in the same way, to compare with")
    checkpoint: str = Field(default="", description="file that training resumes from")
    device: str = Field(default="cpu", description="cpu or cuda:N, of the training")


class DsMethod(TrainedMethod):
    """Doubly Sparse Softmax; `shortlist_models.ds.softmax` has the algorithm and its source."""

    plan = "gated"
    trains_on_devices = True
    training_options = tuple(name for name in DsOptions.model_fields if name not in ("int8", "speedup"))
    kind: ClassVar[type[DsOptions]] = DsOptions

    def learn(
        self, dense: Dense, examples: Contexts, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Train the experts; without targets the dense layer's distribution is distilled."""
        method_options = parse_options(self.kind, options)
        check_device(method_options.device)
        check_bias(dense)
        fit, validation = split_validation(examples, dense.module)
        trained = train_experts(dense, fit, validation, method_options, seed, progress)
        notes = list(trained.notices)
        if examples.targets is None:
            notes.append("the contexts have no targets, so the dense layer's own distribution was distilled")
        fitted = self.make_fitted(trained.module.cpu(), dense, examples, method_options, tuple(notes))
        history = [{name: record[name] for name in HISTORY_FIELDS} for record in trained.history]
        fitted.fit.update(history=history, peak_bytes=trained.peak_bytes)
        if method_options.retrain:
            baseline = retrain_dense(
                dense, fit, validation, make_train_options(method_options, seed), trained, progress
            )
            return replace(fitted, retrained=baseline)
        return fitted

    def restore(
        self, dense: Dense, state: dict[str, torch.Tensor], examples: Contexts, options: dict[str, str]
    ) -> Fitted:
        missing = {"weight", "bias", "gate", "ids", "offsets"} - set(state)
        if missing:
            raise BadInput(f"the head has no tensor '{min(missing)}': save the state_dict of a DSSoftmax")
        try:
            module = DSSoftmax.from_state(state, dense.classes)
        except (ValueError, RuntimeError) as error:
            raise BadInput(f"the head is no whole DSSoftmax of {dense.classes} classes: {error}") from None
        if module.weight.shape[1] != dense.dim or module.gate.shape[1] != dense.dim:
            raise BadInput(f"the head has d = {module.weight.shape[1]} but the weight has d = {dense.dim}")
        return self.make_fitted(module, dense, examples, parse_options(self.kind, options), ())

    def make_fitted(
        self, module: DSSoftmax, dense: Dense, examples: Contexts, options: DsOptions, notes: tuple[str, ...]
    ) -> Fitted:
        """The fitted head of a trained module, with its cost on the contexts of `examples`."""
        if options.int8:
            module = round_rows(module)
        used = module.utilization(torch.from_numpy(examples.contexts))
        fit = options.model_dump(exclude={"checkpoint", "device", "full_view"})
        fit |= {"sizes": module.sizes, "used": used.tolist(), "speedup": module.speedup(used)}
        cost = 1 / module.speedup(used)
        gate = module.experts / module.classes
        read = Cost(macs=cost, bytes=gate + (cost - gate) / (4 if options.int8 else 1))
        return Fitted(module, read, GatedSettings(full_view=0), fit, notes)

    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        del dense
        module = fitted.module
        assert isinstance(module, DSSoftmax)
        return write_graphs(folder, module, {}, int8=fitted.fit["int8"])

    def make_index(self, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
        module = fitted.module
        assert isinstance(module, DSSoftmax)
        return {"ids": module.ids.numpy(), "offsets": module.offsets.numpy()}


def split_validation(examples: Contexts, dense: FullSoftmax) -> tuple[Examples, Examples]:
    """Examples to train on, and the last tenth of them, at most `MAX_VALIDATION_ROWS`, to validate."""
    rows = len(examples.contexts)
    validation_rows = min(MAX_VALIDATION_ROWS, max(1, rows // VALIDATION_SHARE))
    if rows < 2:
        raise BadInput("there is one context to train on: give some thousand")
    contexts = torch.from_numpy(examples.contexts)
    targets = None if examples.targets is None else torch.from_numpy(examples.targets)

    def part(rows: slice) -> Examples:
        return Examples(contexts[rows], dense if targets is None else targets[rows])

    return part(slice(0, rows - validation_rows)), part(slice(rows - validation_rows, rows))


def make_train_options(options: DsOptions, seed: int) -> TrainOptions:
    """The options of the experts' training."""
    names = TrainOptions.__dataclass_fields__.keys() & options.model_dump().keys()
    return TrainOptions(**{name: getattr(options, name) for name in names}, seed=seed)


def train_experts(
    dense: Dense, fit: Examples, validation: Examples, options: DsOptions, seed: int, progress: Progress
) -> TrainingResult:
    """Train from the dense layer; raises BadInput where the models refuse options or examples."""
    checkpoint = Path(options.checkpoint) if options.checkpoint else None
    module_options = DSOptions(
        load=options.load, gamma=options.gamma, keep_one=options.keep_one, expert_group=options.expert_group
    )
    with translate_errors():
        return train(
            dense.module, fit, validation, make_train_options(options, seed), module_options, progress, checkpoint
        )


def retrain_dense(
    dense: Dense,
    fit: Examples,
    validation: Examples,
    options: TrainOptions,
    trained: TrainingResult,
    progress: Progress,
) -> DSSoftmax:
    """A dense softmax, as one expert, trained from the same start, as long and in the same way."""
    same = make_dense_options(options, round(trained.history[-1]["epoch"] * len(fit.contexts)))
    with translate_errors():
        return train(dense.module, fit, validation, same, None, progress).module.cpu()


def check_bias(dense: Dense) -> None:
    """Raise BadInput for a bias whose square float32 does not hold: pruning goes by the squares of rows."""
    if dense.bias is not None and (largest := float(np.abs(dense.bias).max() * dense.logit_scale)) > MAX_BIAS:
        raise BadInput(
            f"the bias goes to {largest:g} in size, over {MAX_BIAS:g}: name classes that it is to rule out in a tensor "
            "`padded` beside the weight, or give them a bias such as -1e4"
        )


def check_device(device: str) -> None:
    """Raise BadInput for a device that torch has not got."""
    if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
        raise BadInput(f"torch has no device '{device}' here: choose cpu, or cuda:N on a machine with an NVIDIA driver")
