"""A head in the place of the output layer of a model of transformers, so that `model.generate` goes on with it.

The output layer's `forward` is replaced by one that keeps the hidden states and multiplies nothing; its weights stay
where they are, since the model may be saved or cast. After the model's `forward`, a hook puts log-probabilities of the
head into its output. They are those of the k best classes, and for each other class an equal share of the probability
that is left over: log-softmax of them is itself, so that beam search and processors of logits do not normalise over the
shortlist alone. What a model does to its logits after its output layer, a scale or a soft-cap, is part of the head and
happens to nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from os import PathLike
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt
import torch

from shortlist.core.checks import parse_whole_number
from shortlist.core.results import BoolArray, FloatArray, IdArray
from shortlist.errors import BadInput
from shortlist.head import Head, load

from .draws import Draws, check_options, count_tokens, list_positions
from .lazy_scores import Rows, make_scores
from .scores import RETURNED_CLASSES, ScoreMemory, find_padding, find_zero, share_rest

PROBE_TOKENS = 8  # read once by `attach`, to compare the model's own logits with the head's
LOGIT_TOLERANCE = 1e-3  # share of the largest logit by which those may differ in float32
HALF_LOGIT_TOLERANCE = 3e-2  # and in float16 and bfloat16
ALL_POSITIONS = 0  # what `logits_to_keep` calls them, too
BRIDGE = "shortlist_bridge"  # attribute of a model that a head is attached to

Tensor = torch.Tensor


@dataclass(frozen=True)
class Options:
    """What is asked of the head at each position: k classes, whether by exact answers and as logits; or draws."""

    k: int
    exact: bool
    logits: bool = False
    draws: Draws | None = None


class Step(threading.local):
    """What `forward` is at in the thread that called it: several may generate with one model.

    states: [B, T, d] that the output layer got. positions: how many last ones are wanted, or `ALL_POSITIONS`. lengths:
    of each row in tokens [B], for draws. memory: what its scores are written to.
    """

    states: Tensor | None = None
    positions = 1
    lengths: npt.NDArray[np.int64] | None = None

    def __init__(self, padded: BoolArray) -> None:
        """Called in each thread. padded: [V], the rows that are no class."""
        self.memory = ScoreMemory(padded)


class Bridge:
    """A head in a model: the methods in whose place it stands, and the hooks that are taken away again."""

    def __init__(self, model: Any, head: Head, options: Options, padded: BoolArray) -> None:
        """Take the place of the output layer. padded: [V], the rows that are no class."""
        self.model, self.head, self.options = model, head, options
        self.classes, self.step = int(np.count_nonzero(~padded)), Step(padded)
        self.positions = 1 if "logits_to_keep" in signature(model.forward).parameters else ALL_POSITIONS
        self.undo = [
            replace_method(model.get_output_embeddings(), "forward", self.keep_states),
            model.register_forward_pre_hook(self.read_arguments, with_kwargs=True).remove,
            model.register_forward_hook(self.replace_logits).remove,
        ]
        if options.draws is not None:
            self.generate = model.generate
            self.undo.append(replace_method(model, "generate", self.generate_by_draws))

    @property
    def memory(self) -> ScoreMemory:
        """Of the scores of this thread."""
        return self.step.memory

    def close(self) -> None:
        """Put the output layer back."""
        for undo in self.undo:
            undo()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Called where the model is copied or pickled with it: the head's locks and files cannot be."""
        raise BadInput("a model with a head attached is neither copied nor pickled: call detach(model) first")

    def keep_states(self, states: Tensor) -> Tensor:
        """In the place of the output layer: hidden states [B, T, d] -> numbers [B, T, 1] of no meaning."""
        self.step.states = states
        return states[..., :1]

    def generate_by_draws(self, *args: Any, **arguments: Any) -> Any:
        """What `model.generate` is while tokens are drawn: `forward` is not told of its options; raises BadInput."""
        given = arguments.get("generation_config", args[1] if len(args) > 1 else None)
        check_options([arguments, *(vars(each) for each in (given, self.model.generation_config) if each is not None)])
        return self.generate(*args, **arguments)

    def read_arguments(self, model: Any, args: Any, arguments: dict[str, Any]) -> None:
        """Before `forward`: how many last positions are wanted, one unless `logits_to_keep` says another number.

        All of a model that has no such argument, most of them behind an encoder: assisted decoding compares them.
        """
        if arguments.get("labels") is not None:
            raise BadInput("a model with a head attached computes no loss: call detach(model) before training")
        wanted = arguments.get("logits_to_keep", self.positions)
        self.step.positions = wanted if isinstance(wanted, int) else len(wanted)
        if self.options.draws is not None:
            if not isinstance(wanted, int):
                raise BadInput("draws are of the last positions: give their number as logits_to_keep")
            self.step.lengths = count_tokens(model, args, arguments)

    def replace_logits(self, model: Any, args: Any, output: Any) -> None:
        """After `forward`: log-probabilities [B, positions, V] float32 into `output.logits`."""
        del model, args
        states, self.step.states = self.step.states, None
        if states is None or not hasattr(output, "logits"):
            raise BadInput("the model gave no output with logits: call it with return_dict=True, the default")
        last = states[:, -self.step.positions :]
        contexts = last.detach().reshape(-1, last.shape[-1]).float().cpu().numpy()
        scores = self.score(contexts) if self.options.draws is None else self.draw(contexts, self.options.draws)
        scores = scores.reshape(*last.shape[:2], -1)
        output.logits = scores if states.device.type == "cpu" else scores.to(states.device)

    def score(self, contexts: FloatArray) -> Tensor:
        """Contexts [n, d] -> log-probabilities, or logits, [n, V] float32 on the CPU."""
        top = self.head.topk(contexts, self.options.k, exact=self.options.exact)
        known, rest = share_rest(top, self.classes)
        if not self.options.logits:
            return self.hold(top.ids, known, rest)
        zero = find_zero(self.head, contexts, top, known)
        return self.hold(top.ids, known + zero, rest + zero, normalized=False)

    def draw(self, contexts: FloatArray, draws: Draws) -> Tensor:
        """Contexts [B T, d] -> [B T, V] float32: 0 for the class that each position draws, -inf for all others.

        So `generate` takes that class, whether it samples or not, whatever temperature and cuts it applies; an
        assistant's token is accepted where it is that class.
        """
        lengths = self.step.lengths
        assert lengths is not None, "draws count tokens before `forward`"
        count = len(contexts) // len(lengths)
        seeds = np.repeat(draws.list_seeds(len(lengths)), count)
        places = list_positions(lengths, count).ravel()
        top = self.head.sample(contexts, seeds, places, draws.temperature, top_k=draws.top_k, top_p=draws.top_p)
        return self.hold(top.ids, np.zeros_like(top.logprobs), np.full((len(contexts), 1), -np.inf, np.float32))

    def hold(self, ids: IdArray, scores: FloatArray, rest: FloatArray, *, normalized: bool = True) -> Tensor:
        """Ids [n, k], their scores [n, k] and that of each other class [n, 1] -> scores [n, V], not yet written."""
        ids_tensor, scores_tensor, rest_tensor = (torch.from_numpy(array) for array in (ids, scores, rest))
        return make_scores(Rows(ids_tensor, scores_tensor, rest_tensor, self.memory, normalized))


def attach(
    model: Any,
    head: Head | str | PathLike[str],
    *,
    k: int = RETURNED_CLASSES,
    exact: bool = False,
    logits: bool = False,
    promise: float | None = None,
    draws: Draws | None = None,
    threads: int | None = None,
) -> Head:
    """Let `model.generate` go on with `head`, a loaded one or a bundle's folder; returns the head that is in use.

    model: of transformers, with an output layer that `get_output_embeddings` names. k: how many classes have
    log-probabilities of their own; greedy search needs 1, beam search of n beams 2 n. exact: ask for exact answers,
    with which greedy and beam search give what they give without a head. logits: give logits in place of
    log-probabilities, which `repetition_penalty` without beams wants; beam search then writes all V. promise: another
    than the export's, of heads that have one. draws: let each token be drawn exactly, in place of what `generate` would
    draw itself from the k best and the rest; without beams. threads: of a head that is loaded here. Afterwards the
    model gives logits of the last position alone, or of as many as `logits_to_keep` says, and computes no loss, until
    `detach`.

    Raises BadInput where model and head do not fit: in their sizes, or in weights, scale and soft-cap, for which the
    model reads `PROBE_TOKENS` tokens.
    """
    if hasattr(model, BRIDGE):
        raise BadInput(f"{type(model).__name__} has a head attached already: call detach(model) first")
    head = head if isinstance(head, Head) else load(str(head), threads=threads)
    head = head if promise is None else head.with_settings(promise=promise)
    check_sizes(model, head)
    padded = find_padding(head, check_logits(model, head))
    most = min(parse_whole_number("k", k), int(np.count_nonzero(~padded)))
    options = Options(head.check_k(most), exact, logits, draws)
    head.choose_plan(1, options.k, exact or draws is not None)  # raises where there are no exact answers
    setattr(model, BRIDGE, Bridge(model, head, options, padded))
    return head


def detach(model: Any) -> None:
    """Give the model its own output layer back. Raises BadInput where it has it."""
    if not hasattr(model, BRIDGE):
        raise BadInput(f"{type(model).__name__} has no head attached")
    getattr(model, BRIDGE).close()
    delattr(model, BRIDGE)


def replace_method(owner: Any, name: str, method: Callable[..., Any]) -> Callable[[], None]:
    """Put `method` in the place of an object's own; what puts that back."""
    before = {key: value for key, value in vars(owner).items() if key == name}
    setattr(owner, name, method)

    def restore() -> None:
        delattr(owner, name)
        vars(owner).update(before)

    return restore


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
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, given: states.append(given[0]))
    try:
        with torch.inference_mode():
            logits = model(**make_probe(model, classes), use_cache=False).logits
    finally:
        hook.remove()
    return states[0][0].float().cpu().numpy(), logits[0].float().cpu().numpy()


def make_probe(model: Any, classes: int) -> dict[str, Any]:
    """Arguments of `forward` for a few tokens; an encoder of sounds or pictures is as if it had said zeros."""
    tokens = torch.arange(min(PROBE_TOKENS, classes), device=model.device)[None]
    if not model.config.is_encoder_decoder:
        return {"input_ids": tokens}
    if model.main_input_name == "input_ids":
        return {"input_ids": tokens, "decoder_input_ids": tokens}
    width = model.get_encoder().config.hidden_size
    silence = torch.zeros(1, PROBE_TOKENS, width, dtype=model.dtype, device=model.device)
    return {"encoder_outputs": (silence,), "decoder_input_ids": tokens}
