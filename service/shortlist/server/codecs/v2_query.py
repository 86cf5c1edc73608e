"""The query that an infer request asks: its inputs and parameters, checked."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from shortlist.bundle.class_sets import MAX_REQUEST_SETS, parse_set_names
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import Names, make_names_error, resolve_names
from shortlist.core.arrays import Array, check_context_shape, to_id_array
from shortlist.core.bias import Bias, make_bias
from shortlist.core.checks import cut, parse_whole_number
from shortlist.core.draws.sampling import Sampling, parse_sampling
from shortlist.core.queries import BeamQuery, Query, SampleQuery, ScoreQuery, TopKQuery
from shortlist.core.results import NO_CLASS, IdArray
from shortlist.core.row_lists import Lists, NamedLists, RowLists
from shortlist.decoding.arguments import make_beam_query
from shortlist.errors import BadInput
from shortlist.server.messages.json_fields import MAX_TEXTS, read_flag, refuse_draw_scores
from shortlist.wire.open_inference import (
    ALLOW,
    BAN,
    BIAS,
    BIAS_IDS,
    CONTEXT,
    EOS,
    FINISHED,
    FORCED,
    IDS,
    LEAST_FLOAT32,
    LENGTHS,
    LIST,
    OFFSETS,
    POSITION,
    ROWS,
    SCORES,
    SEED,
    TEMPERATURE,
    WITHIN,
    WITHOUT,
    Tensor,
)
from shortlist.wire.texts import TEXT_DATATYPE

from .named_lists import ListRegistry

DEFAULT_K = 5  # generic clients and raw binary requests cannot always say k
WHOLE = ("INT64", "INT32")
LIST_INPUTS = tuple(name + end for name in (ALLOW, BAN) for end in ("", OFFSETS, ROWS))
BEAM_INPUTS = (SCORES, FINISHED, EOS, FORCED, LENGTHS, TEMPERATURE)
INPUT_DATATYPES: dict[str, tuple[str, ...]] = {
    CONTEXT: ("FP32", "FP16", "BF16"),
    ALLOW: (*WHOLE, TEXT_DATATYPE),
    BAN: (*WHOLE, TEXT_DATATYPE),
    IDS: (*WHOLE, TEXT_DATATYPE),
    BIAS_IDS: WHOLE,
    BIAS: ("FP32",),
    **{name + end: WHOLE for name in (ALLOW, BAN) for end in (OFFSETS, ROWS)},
    SCORES: ("FP64", "FP32"),
    FINISHED: ("BOOL",),
    EOS: WHOLE,
    FORCED: WHOLE,
    LENGTHS: WHOLE,
    TEMPERATURE: ("FP32", "FP64"),
    SEED: WHOLE,
    POSITION: WHOLE,
    WITHIN: (TEXT_DATATYPE,),
    WITHOUT: (TEXT_DATATYPE,),
}
SET_INPUTS = (WITHIN, WITHOUT)
SEPARATOR = ","  # of the names of sets in a parameter
CLASS_INPUTS = (ALLOW, BAN, IDS, BIAS_IDS, EOS, FORCED)  # inputs of ids
MATRICES = (ALLOW, BAN, IDS, BIAS_IDS, BIAS)  # inputs of shape [m] or [rows, m]; the others but context are flat

Kind = Literal["topk", "score", "beam", "sample"]
INPUTS_OF_KIND: dict[Kind, tuple[str, ...]] = {
    "topk": (CONTEXT, *LIST_INPUTS, BIAS_IDS, BIAS, *SET_INPUTS),
    "score": (CONTEXT, IDS),
    "beam": (CONTEXT, *LIST_INPUTS, BIAS_IDS, BIAS, *BEAM_INPUTS),
    "sample": (CONTEXT, *LIST_INPUTS, BIAS_IDS, BIAS, SEED, POSITION, TEMPERATURE),
}


def name_kind(inputs: dict[str, Tensor]) -> Kind:
    """What these inputs ask: log-probabilities of `ids`, a beam step with `scores`, draws with `seed`, else top k."""
    if SEED in inputs:
        return "sample"
    return "score" if IDS in inputs else "beam" if SCORES in inputs else "topk"


def make_query(
    inputs: dict[str, Tensor],
    parameters: dict[str, Any],
    manifest: Manifest,
    registry: ListRegistry | None,
    names: Names | None = None,
    classified: int = 0,
) -> Query:
    """The query of these inputs; raises BadInput, NotFound.

    names: of classes, which lists may hold in place of ids. classified: how many classes an output is to be classified
    by.
    """
    kind = name_kind(inputs)
    sets = {name: read_set_names(name, inputs, parameters, kind) for name in SET_INPUTS}
    values = {name: read_array(each, manifest, names) for name, each in inputs.items() if name not in SET_INPUTS}
    if CONTEXT not in values:
        raise BadInput(f"input '{CONTEXT}' is missing: send FP32 of shape [rows, {manifest.dim}]")
    check_inputs(values, kind)
    exact = read_flag(parameters, "exact")
    if kind == "score":
        return ScoreQuery(values[CONTEXT], values[IDS].astype(np.int64, copy=False), exact)
    allow, ban = (read_lists(name, values, parameters, registry) for name in (ALLOW, BAN))
    bias = read_bias(values)
    if kind == "sample":
        refuse_draw_scores(parameters)
        return SampleQuery(values[CONTEXT], read_sampling(values, parameters), allow, ban, bias)
    if kind == "beam":
        return read_beam_query(values, parameters, allow, ban, bias)
    return TopKQuery(
        values[CONTEXT],
        read_k(parameters, manifest, classified),
        allow,
        ban,
        exact,
        bias,
        within=sets[WITHIN],
        without=sets[WITHOUT],
    )


def read_set_names(
    name: str, inputs: dict[str, Tensor], parameters: dict[str, Any], kind: Kind
) -> tuple[str, ...] | None:
    """The names of sets: an input of texts, or a parameter of names with commas between them; raises BadInput."""
    if name not in inputs and name not in parameters:
        return None
    if kind != "topk":
        raise BadInput(f"'{name}' is of requests for the k best classes alone: send the set's ids as allow or ban")
    if name not in inputs:
        text = parameters[name]
        return parse_set_names(name, text.split(SEPARATOR) if isinstance(text, str) else text)
    if inputs[name].datatype != TEXT_DATATYPE or len(inputs[name].shape) != 1:
        raise BadInput(f"input '{name}' is of names of sets: send {TEXT_DATATYPE} of shape [n]")
    check_text_count(inputs[name], MAX_REQUEST_SETS)
    return parse_set_names(name, inputs[name].to_texts().tolist())


def check_inputs(values: dict[str, Array], kind: Kind) -> None:
    """Raise BadInput at an input that does not belong to a request of this kind."""
    wrong = next((name for name in values if name not in INPUTS_OF_KIND[kind]), None)
    if wrong is None:
        return
    if kind == "score":
        raise BadInput(
            f"input 'ids' asks for log-probabilities, which '{wrong}' does not change: leave out one of them"
        )
    if wrong == POSITION or kind == "sample":
        raise BadInput(f"input '{wrong}' does not belong to draws, or these lack the input '{SEED}'")
    raise BadInput(f"input '{wrong}' is of a beam step, which needs the input '{SCORES}', too")


def read_lists(
    name: str, values: dict[str, Array], parameters: dict[str, Any], registry: ListRegistry | None
) -> Lists | None:
    """The lists of input `name`: padded, flat with offsets, or registered by a name; raises BadInput, NotFound."""
    ids, offsets, numbers = (values.get(name + end) for end in ("", OFFSETS, ROWS))
    table = parameters.get(name + LIST)
    if table is not None:
        if not isinstance(table, str) or ids is not None:
            raise BadInput(f"parameter '{name}{LIST}' is a name of registered lists, in place of the input '{name}'")
        return resolve_lists(NamedLists(table, numbers), registry)
    if offsets is not None and ids is not None:
        return RowLists.make(ids.reshape(-1), offsets, numbers)
    if offsets is not None or numbers is not None:
        raise BadInput(f"'{name}{OFFSETS}' and '{name}{ROWS}' need a table of lists: send '{name}' or '{name}{LIST}'")
    return ids


def resolve_lists(named: NamedLists, registry: ListRegistry | None) -> RowLists:
    """The registered lists that a request names; raises NotFound, BadInput."""
    if registry is None:
        raise BadInput("no lists are registered here: send them in the request")
    return registry.resolve(named)


def read_bias(values: dict[str, Array]) -> Bias | None:
    """The bias, None where there is none; raises BadInput."""
    if (BIAS in values) != (BIAS_IDS in values):
        raise BadInput(f"a bias is two inputs, '{BIAS_IDS}' and '{BIAS}', of one shape: send both")
    return make_bias(values[BIAS_IDS], values[BIAS]) if BIAS in values else None


def read_beam_query(
    values: dict[str, Array],
    parameters: dict[str, Any],
    allow: Lists | None,
    ban: Lists | None,
    bias: Bias | None,
) -> BeamQuery:
    """The query of a beam step; raises BadInput."""
    if "beam" not in parameters:
        raise BadInput("parameter 'beam' is missing: send the number of rows in each group")
    return make_beam_query(
        values[CONTEXT],
        values[SCORES],
        values.get(FINISHED),
        beam=parameters["beam"],
        n=parameters.get("n"),
        eos=values.get(EOS, parameters.get(EOS, ())),
        allow=allow,
        ban=ban,
        bias=bias,
        forced=values.get(FORCED),
        min_length=parameters.get("min_length", 0),
        lengths=values.get(LENGTHS, parameters.get(LENGTHS)),
        temperature=values.get(TEMPERATURE, parameters.get(TEMPERATURE, 1.0)),
        exact=read_flag(parameters, "exact"),
    )


def read_sampling(values: dict[str, Array], parameters: dict[str, Any]) -> Sampling:
    """What is drawn: inputs of one number or one a row, and parameters `draws`, `top_p` and `k`; raises BadInput."""
    options: dict[str, Any] = {name: values[name] for name in (POSITION, TEMPERATURE) if name in values}
    options |= {name: parameters[name] for name in ("draws", "top_p") if name in parameters}
    return parse_sampling(len(values[CONTEXT]), values[SEED], **options, top_k=parameters.get("k"), k_name="k")


def read_k(parameters: dict[str, Any], manifest: Manifest, classes: int) -> int:
    """Parameter k; without it, as many `classes` as are to be classified, or the default."""
    if "k" not in parameters:
        return classes or min(DEFAULT_K, manifest.max_k)
    k = parse_whole_number("k", parameters["k"])
    if 0 < k < classes:
        raise BadInput(f"classification of {classes} classes wants a k of as many, and k is {k}: leave k out")
    return k


def read_array(tensor: Tensor, manifest: Manifest, names: Names | None) -> Array:
    """One input's numbers, ids in place of names, checked against what the model takes; raises BadInput."""
    datatypes = INPUT_DATATYPES[tensor.name]
    if tensor.datatype not in datatypes:
        raise BadInput(f"input '{tensor.name}' is {cut(tensor.datatype)}: send {' or '.join(datatypes)}")
    if tensor.name == CONTEXT:
        check_context_shape(tensor.shape, manifest.name, manifest.dim)
    elif tensor.name in MATRICES and len(tensor.shape) not in (1, 2):
        raise BadInput(f"input '{tensor.name}' has {len(tensor.shape)} dimensions: send [m] or [rows, m]")
    elif tensor.name not in MATRICES and len(tensor.shape) != 1:
        raise BadInput(f"input '{tensor.name}' has {len(tensor.shape)} dimensions: send it flat")
    if tensor.datatype == TEXT_DATATYPE:
        return read_names(tensor, manifest, names)
    numbers = tensor.to_array(manifest.name)
    if tensor.region is not None and tensor.name in CLASS_INPUTS:
        check_shared_ids(tensor.name, numbers, manifest.classes)
    if tensor.name == SCORES and tensor.raw is None:
        return np.where(numbers <= LEAST_FLOAT32, -np.inf, numbers)  # of a beam that is not there, as outputs say it
    return numbers


def read_names(tensor: Tensor, manifest: Manifest, names: Names | None) -> IdArray:
    """The ids of the classes that an input names, padded with -1; raises BadInput, before any text is read."""
    if names is None and 0 not in tensor.shape:
        raise make_names_error(tensor.name, manifest.name)
    check_text_count(tensor, MAX_TEXTS)
    texts, name = tensor.to_texts(), tensor.name
    if not texts.size:  # of which there may be rows without end, each a list in memory
        return np.empty(texts.shape, np.int64)
    ids = resolve_names(name, texts.tolist(), names, manifest.name, unknown=name == BAN, in_place=name == IDS)
    return to_id_array(name, ids)


def check_text_count(tensor: Tensor, most: int) -> None:
    """Raise BadInput for an input of more than `most` texts: each becomes an object."""
    count = math.prod(tensor.shape)
    if count > most:
        raise BadInput(f"input '{tensor.name}' has {count} texts: send {most} at most in one request")


def check_shared_ids(name: str, ids: IdArray, classes: int) -> None:
    """Raise BadInput at an id from shared memory that is neither -1 nor a class; the sentence does not show it."""
    if ids.size and (ids.min() < NO_CLASS or ids.max() >= classes):
        raise BadInput(f"{name} in shared memory holds an id that is no class: classes go from 0 to {classes - 1}")
