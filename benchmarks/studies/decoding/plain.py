"""A plain beam search by CTranslate2's rule over every class in float64: what translations by a dense head must equal.

It shares the decoder with them, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from examples.translate.corpus import END
from examples.translate.decode import Decoder

Doubles = npt.NDArray[np.float64]
Found = tuple[list[int], float]  # words, and the total by the length with the end


@dataclass
class PlainSentence:
    """beams: words, total and row of the last call. finished: words and score."""

    beams: list[tuple[list[int], float, int]]
    finished: list[Found] = field(default_factory=list)


def search_plainly(
    decoder: Decoder, weight: Doubles, bias: Doubles, sources: list[list[int]], beam: int, max_length: int
) -> list[Found]:
    """The best hypothesis of each sentence. weight: [V, d]. bias: [V]."""
    state = decoder.start(sources)
    sentences = [PlainSentence([([], 0.0, row)]) for row in range(len(sources))]
    going, length = sentences, 0
    while going:
        length += 1
        rows = [one for sentence in going for one in sentence.beams]
        tokens = np.array([words[-1] if words else END for words, _, _ in rows])
        contexts, state = decoder.step(state, tokens, np.array([row for _, _, row in rows]))
        first = 0
        for sentence in going:
            last = first + len(sentence.beams)
            logprobs = normalize(contexts[first:last].astype(np.float64) @ weight.T + bias)
            take_plain_step(sentence, logprobs, first, beam, last_step=length == max_length)
            first = last
        going = [sentence for sentence in going if len(sentence.finished) < beam and length < max_length]
    return [max(sentence.finished, key=lambda each: each[1]) for sentence in sentences]


def normalize(logits: Doubles) -> Doubles:
    """Log-probabilities of logits [b, V]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    logprobs: Doubles = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logprobs


def take_plain_step(sentence: PlainSentence, logprobs: Doubles, first: int, beam: int, *, last_step: bool) -> None:
    """Finish those of the best `beam` continuations that end, go on with the best `beam` that do not."""
    totals = (np.array([total for _, total, _ in sentence.beams])[:, None] + logprobs).ravel()
    bar = np.partition(totals, -2 * beam)[-2 * beam]
    near = np.flatnonzero(totals >= bar)
    best = near[np.lexsort((near, -totals[near]))][: 2 * beam]
    after: list[tuple[list[int], float, int]] = []
    for rank, place in enumerate(best.tolist()):
        parent, id = divmod(place, logprobs.shape[1])
        words, total = sentence.beams[parent][0], float(totals[place])
        ended = id == END
        if rank < beam and (ended or last_step):
            sentence.finished.append((words if ended else [*words, id], total / (len(words) + 1)))
        if not ended and len(after) < beam:
            after.append(([*words, id], total, first + parent))
    sentence.beams = after
