"""One step of a beam search over a head: the best continuations of groups of beams.

The search by the head and what is made of it are apart, so that a server can put the rows of many steps into one batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from shortlist.core.bias import Bias, parse_bias
from shortlist.core.filters import UNRESTRICTED, ClassFilter, check_id_range, parse_filter
from shortlist.core.queries import BeamQuery, BeamStep
from shortlist.core.results import NO_CLASS, BoolArray, DoubleArray, FloatArray, IdArray, PlanResult
from shortlist.errors import BadInput
from shortlist.head import Head
from shortlist.plans.common.base import Plan
from shortlist.plans.common.normalizer import check_overflow

from .arguments import check_step_options, make_beam_query
from .continuations import name_parents, rank_continuations, take_places


@dataclass(slots=True, eq=False)
class BeamSearchRows:
    """The rows of a beam step that a head searches: those whose beams go on.

    plan, normalizer: as `Head.choose_plan` gives them. contexts: [L, d] of the L rows that go on, `live` [G * beam]. k:
    classes wanted for each. class_filter, bias: of those rows.
    """

    query: BeamQuery
    plan: Plan
    normalizer: str
    live: BoolArray
    contexts: FloatArray
    k: int
    class_filter: ClassFilter
    bias: Bias | None


def beam_step(head: Head, contexts: Any, scores: Any, finished: Any = None, **options: Any) -> BeamStep:
    """The n best continuations of each group of `beam` rows.

    contexts: [G * beam, d]. scores: [G * beam], of the beams so far; -inf where there is no beam. finished: [G * beam]
    of bool; a finished beam comes back once, unchanged, as id -1. options: `beam`; `n`, by default max(2, 1 + number of
    end ids) * beam; `eos`, ids that end a sequence; `allow`, `ban`, `bias` as in `Head.topk`; `forced`, the id that
    must follow, -1 for a free row; `min_length` with `lengths`, the tokens that each row has, or all rows: shorter rows
    do not end; `temperature`, one or a row each, which log-probabilities and biases are divided by; `exact`. Raises
    BadInput.
    """
    check_step_options(options)
    options["allow"], options["ban"] = head.resolve_lists(options.get("allow"), options.get("ban"))
    rows = choose_rows(head, make_beam_query(contexts, scores, finished, **options))
    return continue_beams(rows, head.run(rows.plan, rows.contexts, rows.k, rows.class_filter, rows.bias))


def choose_rows(head: Head, query: BeamQuery) -> BeamSearchRows:
    """The rows that `head` has to search for a step, after all checks of its arguments; raises BadInput.

    The plan is that of a request of one group, so that a group's answer is the same whatever groups are beside it.
    """
    contexts = head.check_contexts(query.contexts)
    k = choose_k(head, query)
    live = ~query.finished & (query.scores > -np.inf)
    class_filter, bias = make_filter(head, query, np.flatnonzero(live))
    plan, normalizer = head.choose_plan(query.beam, k, query.exact, proof=bias is None)
    rows = contexts if live.all() else contexts[live]
    return BeamSearchRows(query, plan, normalizer, live, rows, k, class_filter, bias)


def choose_k(head: Head, query: BeamQuery) -> int:
    """Classes wanted for each row: n, or all that there are; raises BadInput where the head gives fewer."""
    manifest = head.manifest
    if manifest.max_k < min(query.n, manifest.classes):
        raise BadInput(
            f"n is {query.n} but {manifest.name} answers at most {manifest.max_k} classes a row: ask for fewer"
        )
    return min(query.n, manifest.max_k)


def make_filter(head: Head, query: BeamQuery, rows: IdArray | npt.NDArray[np.intp]) -> tuple[ClassFilter, Bias | None]:
    """The lists and the bias of some of a step's rows; raises BadInput."""
    classes, total = head.classes, len(query.contexts)
    check_id_range("eos", query.eos, classes)
    bias = parse_bias(query.bias, total, classes)
    lists = parse_filter(query.allow, query.ban, total, classes)
    forced = query.forced
    if forced is not None:
        check_id_range("forced", forced, classes)
        forced = forced[rows] if (forced[rows] >= 0).any() else None
    class_filter = replace(lists.take(rows), hidden=hide_ends(query, rows), forced=forced)
    return (class_filter if class_filter.restricts else UNRESTRICTED), None if bias is None else bias[rows]


def hide_ends(query: BeamQuery, rows: IdArray | npt.NDArray[np.intp]) -> IdArray | None:
    """The end ids [L, e] that may not follow in each of `rows` yet, -1 where they may; None where all may."""
    if query.lengths is None or not query.eos.size:
        return None
    short = np.broadcast_to(query.lengths, len(query.contexts))[rows] < query.min_length
    return np.where(short[:, None], query.eos, NO_CLASS) if short.any() else None


def continue_beams(rows: BeamSearchRows, result: PlanResult) -> BeamStep:
    """The continuations of a step whose searched rows gave `result` [L, k]; raises BadInput where scores overflow."""
    query = rows.query
    check_overflow(spread_rows(rows.live, np.abs(result.log_normalizer)[:, None], 0.0)[:, 0])
    logprobs = result.logits.astype(np.float64) - result.log_normalizer[:, None]
    candidates = spread_rows(rows.live, add_parent_scores(rows, result, logprobs), -np.inf)
    ids, all_logprobs = spread_rows(rows.live, result.ids, NO_CLASS), spread_rows(rows.live, logprobs, -np.inf)
    candidates[query.finished, 0], all_logprobs[query.finished, 0] = query.scores[query.finished], 0.0
    places = rank_continuations(candidates, ids, query.beam, query.n)
    shape = len(places), query.beam * rows.k
    return BeamStep(
        name_parents(places, rows.k),
        cast(IdArray, take_places(ids.reshape(shape), places, NO_CLASS)),
        cast(DoubleArray, take_places(candidates.reshape(shape), places, -np.inf)),
        take_places(all_logprobs.reshape(shape), places, -np.inf).astype(np.float32),
        rows.normalizer,
    )


def add_parent_scores(rows: BeamSearchRows, result: PlanResult, logprobs: DoubleArray) -> DoubleArray:
    """Scores [L, k] of the sequences that end in each class."""
    query = rows.query
    gains = logprobs if result.weights is None else logprobs + result.weights
    temperature = query.temperature if query.temperature.size == 1 else query.temperature[rows.live]
    scores: DoubleArray = query.scores[rows.live, None] + gains / temperature[:, None]
    return scores


def spread_rows(live: BoolArray, values: npt.NDArray[Any], missing: float) -> npt.NDArray[Any]:
    """`values` [L, k] of the rows that are `live` [R] as [R, k], with `missing` in all others."""
    if live.all():
        return values
    spread = np.full((len(live), values.shape[1]), missing, values.dtype)
    spread[live] = values
    return spread
