"""A plain beam search in float64 over a small decoder, sentence by sentence: what the service's search is held to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

START = 0


class Decoder:
    """A recurrent decoder with random weights. State: [R, d], a row for each token of the call before."""

    def __init__(self, classes: int, dim: int, seed: int = 5) -> None:
        random = np.random.default_rng(seed)
        self.turn = random.standard_normal((dim, dim)) / math.sqrt(dim)
        self.embedding = random.standard_normal((classes, dim))
        self.rows_of_calls: list[int] = []

    def start(self, sentences: int, seed: int = 6) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal((sentences, len(self.turn)))

    def step(self, state: np.ndarray, tokens: np.ndarray, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.rows_of_calls.append(len(tokens))
        after = np.tanh(state[parents] @ self.turn + self.embedding[tokens])
        return after.astype(np.float32) * np.float32(0.8), after


def search_plainly(
    decoder: Decoder, score: Callable[[np.ndarray], np.ndarray], state: np.ndarray, **options: Any
) -> list[tuple[list[int], float]]:
    """(tokens with the end, score) of the best hypotheses of one sentence, whose state is [1, d].

    score: contexts [1, d] -> log-probabilities [1, V].
    """
    beam, eos, prefix = options.get("beam", 5), options.get("eos", []), list(options.get("prefix", []))
    state = decoder.step(state, np.array([START]), np.array([0]))[1]
    for token in prefix:
        state = decoder.step(state, np.array([token]), np.array([0]))[1]
    beams = [([], 0.0, state)]
    finished: list[tuple[list[int], float]] = []
    best_ended = False
    for length in range(1, options.get("max_length", 256) + 1):
        candidates = []
        for parent, (tokens, total, row) in enumerate(beams):
            logprobs = score(row.astype(np.float32) * np.float32(0.8))[0].astype(np.float64)
            gains = restrict_plainly(logprobs, prefix + tokens, len(tokens), options)
            candidates += [(total + gain, parent, id) for id, gain in enumerate(gains) if gain > -np.inf]
        candidates.sort(key=lambda each: (-each[0], each[1], each[2]))
        last, after = length == options.get("max_length", 256), []
        for rank, (total, parent, id) in enumerate(candidates):
            tokens = [*beams[parent][0], id]
            if rank < beam and (id in eos or last):
                best_ended |= rank == 0
                finished.append((tokens, score_plainly(total, tokens, options)))
            if id not in eos and len(after) < beam:
                after.append((tokens, total, decoder.step(beams[parent][2], np.array([id]), np.array([0]))[1]))
        beams = after
        finished.sort(key=lambda each: -each[1])
        if not beams or last or is_done_plainly(finished, beams[0][1], length, best_ended, options):
            break
    return finished[: options.get("n_best", 1)]


def restrict_plainly(logprobs: np.ndarray, tokens: list[int], length: int, options: dict[str, Any]) -> np.ndarray:
    """What each class adds to a total, -inf for what may not follow."""
    gains = logprobs.copy()
    if options.get("repetition_penalty", 1) != 1:
        gains[tokens] *= options["repetition_penalty"]
    for id, weight in options.get("bias", {}).items():
        gains[id] += weight
    if length < options.get("min_length", 0):
        gains[options["eos"]] = -np.inf
    gains[list(options.get("ban", []))] = -np.inf
    if "allow" in options:
        gains[np.setdiff1d(np.arange(len(gains)), options["allow"])] = -np.inf
    wrong = [id for id in range(len(gains)) if ends_wrongly([*tokens, id], options)]
    gains[wrong] = -np.inf
    return gains / options.get("temperature", 1.0)


def ends_wrongly(tokens: list[int], options: dict[str, Any]) -> bool:
    """Whether the last token repeats an n-gram, or completes a suppressed sequence."""
    size = options.get("no_repeat_ngram", 0)
    grams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)] if size else []
    sequences = options.get("suppressed", [])
    return bool(grams and grams[-1] in grams[:-1]) or any(tokens[-len(each) :] == list(each) for each in sequences)


def score_plainly(total: float, tokens: list[int], options: dict[str, Any]) -> float:
    rule = options["finish"]
    return total / len(tokens) ** rule.length_penalty


def is_done_plainly(
    finished: list[tuple[list[int], float]], best: float, length: int, best_ended: bool, options: dict[str, Any]
) -> bool:
    rule, beam, wanted = options["finish"], options.get("beam", 5), options.get("n_best", 1)
    penalty, most = rule.length_penalty, options.get("max_length", 256)
    if type(rule).__name__ == "CTranslate2":
        return best_ended and len(finished) >= wanted if penalty == 0 else len(finished) >= round(beam * rule.patience)
    if type(rule).__name__ == "HuggingFace":
        if len(finished) < beam:
            return False
        at = most if rule.early_stopping == "never" and penalty > 0 else length
        return rule.early_stopping is True or finished[beam - 1][1] >= best / at**penalty
    return False  # to the very end: what NoneBetter must equal
