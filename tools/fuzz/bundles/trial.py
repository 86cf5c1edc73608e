"""One mutated bundle: loaded, its canary replayed, then queried in every way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from shortlist.bundle.reader import Bundle
from shortlist.core.results import NO_CLASS
from shortlist.errors import BundleError, ShortlistError
from shortlist.evaluation.canary import check_canary
from shortlist.head import Head

REFUSED, FAILED_CANARY, HARMLESS = "refused", "failed its canary", "harmless"
MAX_SENTENCE_CHARACTERS = 1000
DEEP_K = 200
MAX_DIM = 4096  # of contexts that are made for a bundle whose manifest lies about its own


def try_bundle(folder: Path, contexts: np.ndarray, *, distinct: bool = True) -> str:
    """What became of the bundle at `folder`: an outcome. Raises where it is neither refused nor answers as it should.

    contexts: [n, d] of its layer, d as before the mutation. distinct: whether a row's classes have to be different,
    as they are where graphs are as they were exported.
    """
    warnings.simplefilter("ignore", RuntimeWarning)  # of scores that overflow, which numpy mentions on stderr
    try:
        bundle = Bundle(folder)
        head = Head(bundle, "cpu", 1)
    except BundleError as error:
        check_sentence(error)
        return REFUSED
    outcome = replay_canary(head, bundle)
    for call in list_calls(head, contexts, distinct=distinct):
        try:
            call()
        except ShortlistError as error:
            check_sentence(error)
    return outcome


def replay_canary(head: Head, bundle: Bundle) -> str:
    """Whether the canary, which servers replay at a load, passes."""
    try:
        check_canary(head, bundle)
    except BundleError as error:
        check_sentence(error)
        return FAILED_CANARY
    return HARMLESS


def list_calls(head: Head, contexts: np.ndarray, *, distinct: bool) -> Iterator[Callable[[], None]]:
    """Calls that check their own answers; some reach each way of a plan."""
    manifest = head.manifest
    rows = contexts if contexts.shape[1] == manifest.dim else np.zeros((40, min(manifest.dim, MAX_DIM)), np.float32)
    some = np.array([0, 7, manifest.classes // 2, manifest.classes - 1]).clip(0, manifest.classes - 1)
    check_top = partial(check_topk, head, distinct=distinct)
    lists = ({"allow": some}, {"ban": some}, {"allow": some[None], "ban": some[:1]})
    for exact in (False, True):
        for count, k in ((0, 1), (1, 1), (1, 5), (3, 5), (40, 5), (2, 70), (1, DEEP_K)):
            yield partial(check_top, rows[:count], min(k, manifest.max_k), exact=exact)
        for each in lists:
            yield partial(check_top, rows[:1], min(3, manifest.max_k), exact=exact, **each)
        yield partial(check_scores, head, rows[:3], np.tile(some, (3, 1)), exact=exact)


def check_topk(head: Head, contexts: np.ndarray, k: int, *, distinct: bool, **options: Any) -> None:
    """Ask for the k best, and fail where the answer is not well-formed."""
    top, classes = head.topk(contexts, k, **options), head.manifest.classes
    assert top.ids.shape == top.logprobs.shape == (len(contexts), k), f"answers of shape {top.ids.shape}"
    assert ((top.ids >= NO_CLASS) & (top.ids < classes)).all(), f"ids go from {top.ids.min()} to {top.ids.max()}"
    for row in top.ids if distinct else ():
        real = row[row >= 0]
        assert len(set(real.tolist())) == real.size, "a class came twice"
    assert (np.isneginf(top.logprobs) >= (top.ids == NO_CLASS)).all(), "an id of -1 has a log-probability"
    assert ((top.scored >= 0) & (top.scored <= classes)).all(), f"scored goes to {top.scored.max()}"
    check_logprobs(top.logprobs)


def check_scores(head: Head, contexts: np.ndarray, ids: np.ndarray, *, exact: bool) -> None:
    """Ask for the log-probabilities of given classes."""
    logprobs = head.logprobs(contexts, ids, exact=exact)
    assert logprobs.shape == ids.shape, f"log-probabilities of shape {logprobs.shape}"
    check_logprobs(logprobs)


def check_logprobs(logprobs: np.ndarray) -> None:
    """Fail at NaN and +inf."""
    assert not np.isnan(logprobs).any(), "a log-probability is NaN"
    assert not np.isposinf(logprobs).any(), "a log-probability is infinite"


def check_sentence(error: ShortlistError) -> None:
    """Fail where the error's message is not one line that can be read."""
    text = str(error)
    assert text.isprintable(), f"the sentence is no single line: {text!r}"
    assert len(text) <= MAX_SENTENCE_CHARACTERS, f"the sentence has {len(text)} characters"
