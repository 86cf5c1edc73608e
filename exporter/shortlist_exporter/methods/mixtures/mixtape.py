"""Method `mixtape`: a Mixtape, trained here or brought along, its rare classes searched by groups; plan `mixture`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from shortlist.bundle.settings import GroupedSettings, MixtureSettings
from shortlist.errors import BadInput
from shortlist_models.mixtures.mixtape import Mixtape
from shortlist_models.rescored.grouped import GroupedSoftmax
from torch import Tensor

from shortlist_exporter.core.types import Cost, FloatArray, Progress, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.mixture.parts import FOLDER, list_frequent_ids, write_mixture
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.methods.base import Fitted, Options, TrainedMethod, parse_options
from shortlist_exporter.methods.grouped import GroupedMethod
from shortlist_exporter.methods.supervised import (
    check_layer_shape,
    note_absent_classes,
    rank_examples,
    train_module,
    translate_errors,
)

SEARCH_OPTIONS = ("opened", "previewed", "candidates", "full_view")  # as of method grouped, for the rare classes
SEARCH_FIT_ROWS = 64_000  # contexts that the search among the rare classes is fitted to
CHUNK_ROWS = 4096


class MixtapeOptions(Options):
    """`--set` options of method mixtape."""

    components: int = Field(default=4, ge=1, description="K, a power of two")
    frequent: int | None = Field(default=None, ge=1, description="classes with gates of their own; V/10 by default")
    gate_width: int = Field(default=32, ge=1, description="dimensions of the gates' vectors")
    gate_noise: float = Field(default=0.0, ge=0, description="standard deviation added to gates' logits in training")
    epochs: int = Field(default=4, ge=1)
    batch: int = Field(default=256, ge=1)
    learning_rate: float = Field(default=0.003, gt=0)
    checkpoint: str = Field(default="", description="file that training resumes from")
    opened: int | None = Field(default=None, ge=1, description="rare classes in the groups opened, as of grouped")
    previewed: int | None = Field(default=None, ge=1, description="of those, classes previewed by all columns")
    candidates: int | None = Field(default=None, ge=1, description="of those, classes scored by int8 rows")
    full_view: int = Field(default=7, ge=5, description="of those, classes scored exactly")


class ServedMixtape(torch.nn.Module):
    """A Mixtape and the search among its rare classes; `log_prob` is that of all classes by all components."""

    def __init__(self, mixtape: Mixtape, search: Fitted, rare: Dense) -> None:
        super().__init__()
        self.mixtape, self.search, self.rare = mixtape, search, rare

    def log_prob(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> log-probabilities [B, V]."""
        return self.mixtape.log_prob(contexts)


class MixtapeMethod(TrainedMethod):
    """A Mixtape; `shortlist_models.mixtures.mixtape` has the algorithm and its source."""

    plan = "mixture"
    training_options = (*TrainedMethod.training_options, "gate_noise")
    normalizer = "estimated"
    ways_to_find_more = "use a larger opened, candidates or full_view, as in --set candidates=1024"

    def learn(
        self, dense: Dense, examples: Contexts, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Order classes by falling frequency in the targets, then train; raises BadInput."""
        method_options = parse_options(MixtapeOptions, options)
        ranked = rank_examples(examples, dense)
        with translate_errors():
            torch.manual_seed(seed)
            module = Mixtape(
                dense.dim,
                dense.classes,
                method_options.components,
                method_options.frequent,
                method_options.gate_width,
                ranked.order,
                gate_noise=method_options.gate_noise,
            )
        check_rare(module)
        result = train_module(module, module, ranked, method_options, seed, progress)
        return make_fitted(module, ranked.contexts, method_options, result, seed)

    def restore(self, dense: Dense, state: dict[str, Tensor], examples: Contexts, options: dict[str, str]) -> Fitted:
        """Restore from the state dict of a `Mixtape`."""
        method_options = parse_options(MixtapeOptions, options)
        with translate_errors():
            module = Mixtape.from_state(state)
        check_layer_shape((module.classes, module.dim), dense)
        check_rare(module)
        return make_fitted(module, torch.from_numpy(examples.contexts), method_options, {}, 0)

    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        """The mixture's own graphs, and those of the search, in a folder of their own: dense has a bias, too."""
        del dense
        module, below = fitted.module, folder / FOLDER
        assert isinstance(module, ServedMixtape)
        below.mkdir()
        files = write_mixture(below, module.mixtape, module.rare)
        files |= GroupedMethod().write_graphs(module.search, module.rare, below)
        return files.below(FOLDER)

    def make_index(self, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
        """That of the search, and `frequent` [S], the ids of the classes that are always scored."""
        module = fitted.module
        assert isinstance(module, ServedMixtape)
        return GroupedMethod().make_index(module.search) | {"frequent": list_frequent_ids(module.mixtape).numpy()}

    def find_proved_layer(self, fitted: Fitted, dense: Dense, contexts: FloatArray) -> tuple[Dense, FloatArray] | None:
        """The layer of the rare classes, and the means that they are scored by."""
        del dense
        module = fitted.module
        assert isinstance(module, ServedMixtape)
        return module.rare, compute_means(module.mixtape, torch.from_numpy(contexts))


def check_rare(module: Mixtape) -> None:
    """Raise BadInput where no class shares gates, so that there is nothing to search."""
    if module.frequent == module.classes:
        raise BadInput(f"all {module.classes} classes have gates of their own: set frequent to fewer, as V/10")


def make_rare_layer(module: Mixtape) -> Dense:
    """The ordinary layer of the rare classes over the components' mean, by id; frequent classes are its padding."""
    weight, bias = (values.detach()[module.ranks].contiguous().numpy() for values in (module.weight, module.bias))
    return Dense(weight, bias, padded=list_frequent_ids(module).numpy())


def compute_means(module: Mixtape, contexts: Tensor) -> FloatArray:
    """The vectors [n, d] that rare classes are scored by, of `contexts` [n, d]."""
    with torch.inference_mode():
        parts = [
            module.compute_mean(module.compute_components(rows), module.compute_gates(rows)[1])
            for rows in torch.split(contexts, CHUNK_ROWS)
        ]
    return np.ascontiguousarray(torch.cat(parts).numpy())


def make_fitted(module: Mixtape, contexts: Tensor, options: MixtapeOptions, fit: dict[str, Any], seed: int) -> Fitted:
    """The fitted head: the search among the rare classes, fitted to the vectors that they are scored by."""
    step = max(1, len(contexts) // SEARCH_FIT_ROWS)
    given = options.model_dump(include=set(SEARCH_OPTIONS), exclude_none=True)
    rare = make_rare_layer(module)
    if rare.real_classes < given["full_view"]:
        raise BadInput(
            f"{rare.real_classes} rare classes are fewer than full_view={given['full_view']}: set fewer "
            "frequent or a smaller full_view, 5 at least, or choose another --method"
        )
    means = compute_means(module, contexts[::step])
    search = GroupedMethod().fit(rare, means, {name: str(value) for name, value in given.items()}, seed)
    assert isinstance(search.settings, GroupedSettings)
    assert isinstance(search.module, GroupedSoftmax)
    fit = options.model_dump(exclude={"checkpoint", *SEARCH_OPTIONS}) | fit | search.fit
    fit |= {"components": module.components, "frequent": module.frequent, "gate_width": module.gate_width}
    return Fitted(
        ServedMixtape(module, search, rare),
        estimate_cost(module, search.cost),
        MixtureSettings(**search.settings.model_dump()),
        fit,
        note_absent_classes(fit),
    )


def estimate_cost(module: Mixtape, search: Cost) -> Cost:
    """Components, gates and frequent classes, all in float32, and the search among the rare ones, against V x d."""
    rare = (module.classes - module.frequent) * module.dim
    whole = module.classes * module.dim
    first = (module.count_multiply_adds() - rare) / whole
    small = (module.components - 1) * module.frequent * module.dim / whole  # products that read the same weights
    return Cost(macs=search.macs + first, bytes=search.bytes + first - small)
