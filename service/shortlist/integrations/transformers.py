"""A head in the place of the output layer of a model of transformers, so that `model.generate` goes on with it.

The output layer is replaced by one that keeps the hidden states of the last position and multiplies nothing. After the
model's `forward`, a hook puts log-probabilities of the head into its output. They are those of the k best classes, and
for each other class an equal share of the probability that is left over: log-softmax of them is itself, so that beam
search and processors of logits do not normalise over the shortlist alone. What a model does to its logits after its
output layer, a scale or a soft-cap, is part of the head and happens to nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shortlist.core.checks import parse_whole_number
from shortlist.core.results import BoolArray, FloatArray, IdArray
from shortlist.errors import BadInput
from shortlist.head import Head, load

from .lazy_scores import Rows, make_scores
from .scores import RETURNED_CLASSES, ScoreMemory, find_padding, share_rest

PROBE_TOKENS = 8  # read once by `attach`, to compare the model's own logits with the head's
LOGIT_TOLERANCE = 1e-3  # share of the largest logit by which those may differ in float32
HALF_LOGIT_TOLERANCE = 3e-2  # and in float16 and bfloat16
BRIDGE = "shortlist_bridge"  # attribute of a model that a head is attached to

Tensor = torch.Tensor


@dataclass(frozen=True)
class Options:
    """What is asked of the head at each position: k classes, whether by its exact answers; or draws."""

    k: int
    exact: bool
    draws: Draws | None = None


@dataclass(frozen=True)
class Draws:
    """How `generate` draws: each token exactly from the softmax, by noise that is a function of its seed and position.

    seed: of row 0; each further row of the batch has the next one; or a sequence of one a row, which makes a row's text
    the same in every batch. The position of a token is how many tokens come before it, padding apart; of a model with
    an encoder, those of the decoder. The rest is as of `Head.sample`. No processor of `generate` may forbid tokens: it
    would forbid the one drawn, too, and leave none.
    """

    seed: int | Sequence[int]
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def list_seeds(self, rows: int) -> list[int]:
        """A seed for each of `rows` rows; raises BadInput where there are more or fewer."""
        if np.ndim(self.seed) == 0:
            first = parse_whole_number("seed", self.seed)
            return [first + row for row in range(rows)]
        seeds = [parse_whole_number("seed", seed) for seed in self.seed]  # type: ignore[union-attr]
        if len(seeds) != rows:
            raise BadInput(f"draws have {len(seeds)} seeds for {rows} rows: give one seed, or one for each row")
        return seeds


class HiddenStates(torch.nn.Module):
    """In the place of an output layer: keeps the hidden states [B, T, d] and returns numbers [B, T, 1] of no meaning.

    weight: the output layer's own, which models look at for its dtype and device.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight_of_layer = [weight]  # in a list it is no parameter of this module
        self.states: Tensor | None = None

    @property
    def weight(self) -> Tensor:
        """[V, d]."""
        return self.weight_of_layer[0]

    def forward(self, states: Tensor) -> Tensor:
        self.states = states
        return states[..., :1]


class Bridge:
    """A head in a model: what stood in its place, and the hooks that are taken away again."""

    def __init__(self, model: Any, head: Head, options: Options, padded: BoolArray) -> None:
        """Take the place of the output layer. padded: [V], the rows that are no class."""
        self.model, self.head, self.options = model, head, options
        self.layer, self.positions = model.get_output_embeddings(), 1
        self.lengths: npt.NDArray[np.int64] | None = None
        self.states = HiddenStates(self.layer.weight)
        self.classes = int(np.count_nonzero(~padded))
        self.memory = ScoreMemory(padded)
        model.set_output_embeddings(self.states)
        self.hooks = [
            model.register_forward_pre_hook(self.read_arguments, with_kwargs=True),
            model.register_forward_hook(self.replace_logits),
        ]
        if options.draws is not None:
            self.generate, self.replaced = model.generate, {k: v for k, v in vars(model).items() if k == "generate"}
            model.generate = self.generate_without_beams

    def close(self) -> None:
        """Put the output layer back."""
        for hook in self.hooks:
            hook.remove()
        self.model.set_output_embeddings(self.layer)
        if self.options.draws is not None:
            del self.model.generate
            vars(self.model).update(self.replaced)

    def generate_without_beams(self, *args: Any, **arguments: Any) -> Any:
        """What `model.generate` is while tokens are drawn: `forward` is not told of beams; raises BadInput."""
        beams = count_beams(self.model, args, arguments)
        if beams > 1:
            raise BadInput(
                f"draws are of one text a row, not of {beams} beams: give num_beams=1, or attach without draws"
            )
        return self.generate(*args, **arguments)

    def read_arguments(self, model: Any, args: Any, arguments: dict[str, Any]) -> None:
        """Before `forward`: how many last positions are wanted, one unless `logits_to_keep` asks for more."""
        if arguments.get("labels") is not None:
            raise BadInput("a model with a head attached computes no loss: call detach(model) before training")
        wanted = arguments.get("logits_to_keep", 1)
        self.positions = max(1, wanted) if isinstance(wanted, int) else len(wanted)
        if self.options.draws is not None:
            self.lengths = count_tokens(model, args, arguments)

    def replace_logits(self, model: Any, args: Any, output: Any) -> None:
        """After `forward`: log-probabilities [B, positions, V] float32 into `output.logits`."""
        del model, args
        states, self.states.states = self.states.states, None
        if states is None or not hasattr(output, "logits"):
            raise BadInput("the model gave no output with logits: call it with return_dict=True, the default")
        last = states[:, -self.positions :]
        contexts = last.detach().reshape(-1, last.shape[-1]).float().cpu().numpy()
        scores = self.score(contexts) if self.options.draws is None else self.draw(contexts, self.options.draws)
        scores = scores.reshape(*last.shape[:2], -1)
        output.logits = scores if states.device.type == "cpu" else scores.to(states.device)

    def score(self, contexts: FloatArray) -> Tensor:
        """Contexts [n, d] -> log-probabilities [n, V] float32 on the CPU."""
        top = self.head.topk(contexts, self.options.k, exact=self.options.exact)
        return self.hold(top.ids, *share_rest(top, self.classes))

    def draw(self, contexts: FloatArray, draws: Draws) -> Tensor:
        """Contexts [B, d] -> [B, V] float32: 0 for the class that each row draws, -inf for all others.

        So `generate` takes that class, whether it samples or not, whatever temperature and cuts it applies.
        """
        if self.positions > 1 or self.lengths is None:
            raise BadInput("draws are of one position a step: leave out assisted decoding and logits_to_keep")
        rows = len(contexts)
        top = self.head.sample(
            contexts, draws.list_seeds(rows), self.lengths, draws.temperature, top_k=draws.top_k, top_p=draws.top_p
        )
        return self.hold(top.ids, np.zeros_like(top.logprobs), np.full((rows, 1), -np.inf, np.float32))

    def hold(self, ids: IdArray, scores: FloatArray, rest: FloatArray) -> Tensor:
        """Ids [n, k], their scores [n, k] and that of each other class [n, 1] -> scores [n, V], not yet written."""
        ids_tensor, scores_tensor, rest_tensor = (torch.from_numpy(array) for array in (ids, scores, rest))
        return make_scores(Rows(ids_tensor, scores_tensor, rest_tensor, self.memory))


def attach(
    model: Any,
    head: Head | str | PathLike[str],
    *,
    k: int = RETURNED_CLASSES,
    exact: bool = False,
    promise: float | None = None,
    draws: Draws | None = None,
    threads: int | None = None,
) -> Head:
    """Let `model.generate` go on with `head`, a loaded one or a bundle's folder; returns the head that is in use.

    model: of transformers, with an output layer that `get_output_embeddings` names. k: how many classes have
    log-probabilities of their own; greedy search needs 1, beam search of n beams 2 n. exact: ask for exact answers,
    with which greedy and beam search give what they give without a head. promise: another than the export's, of heads
    that have one. draws: let each token be drawn exactly, in place of what `generate` would draw itself from the k best
    and the rest; without beams. threads: of a head that is loaded here. Afterwards the model gives logits of the last
    position alone, or of as many as `logits_to_keep` says, and computes no loss, until `detach`.

    Raises BadInput where model and head do not fit: in their sizes, or in weights, scale and soft-cap, for which the
    model reads `PROBE_TOKENS` tokens.
    """
    if hasattr(model, BRIDGE):
        raise BadInput(f"{type(model).__name__} has a head attached already: call detach(model) first")
    head = head if isinstance(head, Head) else load(str(head), threads=threads)
    head = head if promise is None else head.with_settings(promise=promise)
    check_sizes(model, head)
    padded = find_padding(head, check_logits(model, head))
    options = Options(head.check_k(min(k, int(np.count_nonzero(~padded)))), exact, draws)
    head.choose_plan(1, options.k, exact or draws is not None)  # raises where there are no exact answers
    setattr(model, BRIDGE, Bridge(model, head, options, padded))
    return head


def detach(model: Any) -> None:
    """Give the model its own output layer back. Raises BadInput where it has it."""
    if not hasattr(model, BRIDGE):
        raise BadInput(f"{type(model).__name__} has no head attached")
    getattr(model, BRIDGE).close()
    delattr(model, BRIDGE)


def count_beams(model: Any, args: Any, arguments: dict[str, Any]) -> int:
    """How many beams `model.generate` has by its arguments, else by the configuration given to it, else by its own."""
    given = arguments.get("generation_config", args[1] if len(args) > 1 else None)
    beams = [
        arguments.get("num_beams"),
        *(getattr(each, "num_beams", None) for each in (given, model.generation_config)),
    ]
    return next((count for count in beams if count is not None), 1)


def count_tokens(model: Any, args: Any, arguments: dict[str, Any]) -> npt.NDArray[np.int64]:
    """How many tokens each row has [B], by the arguments of `forward`: of the decoder's side, where there are two.

    Those of the mask, else by the position of the last one, else of cache and input; raises BadInput without input.
    """
    side = "decoder_" if model.config.is_encoder_decoder else ""
    given = [arguments.get(f"{side}input_ids"), arguments.get(f"{side}inputs_embeds"), *args[: 0 if side else 1]]
    tokens = next((each for each in given if each is not None), None)
    if tokens is None:
        raise BadInput(f"draws count the tokens before each one, which forward did not get: give {side}input_ids")
    mask, positions = arguments.get(f"{side}attention_mask"), arguments.get(f"{side}position_ids")
    if isinstance(mask, Tensor) and mask.ndim == 2:
        return count_rows(mask.sum(dim=1))
    if isinstance(positions, Tensor) and positions.shape[:-1] == tokens.shape[:1]:
        return count_rows(positions[:, -1] + 1)  # a static cache has a mask of four dimensions
    cache = arguments.get("past_key_values")
    return np.full(len(tokens), tokens.shape[1] + (0 if cache is None else int(cache.get_seq_length())), np.int64)


def count_rows(lengths: Tensor) -> npt.NDArray[np.int64]:
    """Lengths [B] as whole numbers on the CPU."""
    return lengths.cpu().numpy().astype(np.int64)


def check_sizes(model: Any, head: Head) -> None:
    """Raise BadInput unless the model's output layer has as many rows and columns as the head."""
    layer, manifest = model.get_output_embeddings(), head.manifest
    if getattr(layer, "weight", None) is None:
        raise BadInput(f"{type(model).__name__} has no output layer: give a causal language model")
    rows, columns = layer.weight.shape
    if (rows, columns) != (manifest.classes, manifest.dim):
        raise BadInput(
            f"the output layer of {type(model).__name__} is [{rows}, {columns}] but {manifest.name} was exported from "
            f"[{manifest.classes}, {manifest.dim}]: export a head of this model"
        )


def check_logits(model: Any, head: Head) -> FloatArray:
    """The head's exact logits [V] of one context; raises BadInput unless they are the model's own, of a few tokens.

    A head that is its own reference, trained anew, has logits of its own, which are not compared.
    """
    states, wanted = read_own_logits(model, head.manifest.classes)
    ids = np.tile(np.arange(head.manifest.classes), (len(states), 1))
    logits = head.compute_logits(head.plan, states, ids)
    off = np.abs(np.where(np.isneginf(logits), 0, logits - wanted)).max() / np.abs(wanted).max()
    in_float32 = model.get_output_embeddings().weight.dtype == torch.float32
    if not head.is_own_reference and not off <= (LOGIT_TOLERANCE if in_float32 else HALF_LOGIT_TOLERANCE):
        scale, cap = head.manifest.logit_scale, head.manifest.soft_cap
        raise BadInput(
            f"logits of {head.manifest.name} (logit scale {scale:g}, soft-cap {cap or 'none'}) are off from those of "
            f"{type(model).__name__} by {off:.2g} of the largest: export a head of this very model"
        )
    return np.asarray(logits[0], np.float32)


def read_own_logits(model: Any, classes: int) -> tuple[FloatArray, FloatArray]:
    """Contexts [t, d] that the output layer gets for a few tokens, and the logits [t, V] that the model makes."""
    states: list[Tensor] = []
    tokens = torch.arange(min(PROBE_TOKENS, classes), device=model.device)[None]
    inputs = {"input_ids": tokens}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, given: states.append(given[0]))
    try:
        with torch.inference_mode():
            logits = model(**inputs, use_cache=False).logits
    finally:
        hook.remove()
    return states[0][0].float().cpu().numpy(), logits[0].float().cpu().numpy()
