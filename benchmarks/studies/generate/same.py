"""What is asked of a model's heads about their tokens, and the findings."""

from __future__ import annotations

from dataclasses import dataclass

from shortlist.head import Head

from benchmarks.common.runs import Store

from .identity import (
    WIDE_BEAM,
    Contender,
    Difference,
    Prompts,
    continue_prompts,
    count_same,
    list_differences,
)
from .models import Subject
from .speed import STRAIGHT_BEAM

PROMISES = (0.99, 0.999)
EXACT = "exact, greedy"
BOUNDED, DENSE = "exact, beam 4, log-probabilities bounded", "exact, beam 4, log-probabilities exact"


@dataclass(frozen=True)
class Finding:
    """share: of the continuations that are the model's own. differences: the others."""

    share: float
    differences: list[Difference]


def name_promise(promise: float) -> str:
    """The name of the contender that keeps this promise."""
    return f"promise {promise:g}, greedy"


def list_contenders(head: Head, full: Head) -> list[Contender]:
    """Exact answers by proof and by the whole layer, and promises. full: the head that computes all logits."""
    return [
        Contender(EXACT, STRAIGHT_BEAM, head, exact=True),
        *(Contender(name_promise(promise), STRAIGHT_BEAM, head, promise=promise) for promise in PROMISES),
        Contender(DENSE, WIDE_BEAM, full),
        Contender(BOUNDED, WIDE_BEAM, head, exact=True),
    ]


def compare_tokens(subject: Subject, head: Head, full: Head, prompts: Prompts) -> dict[str, Finding]:
    """By contender, how many of its continuations are the model's own; kept in the subject's folder."""
    store, model = Store(subject.folder / "tokens"), subject.model
    own: dict[int, Prompts] = {}
    findings = {}
    for contender in list_contenders(head, full):
        if contender.beams not in own:
            untouched = Contender(f"untouched, {contender.beams} beams", contender.beams)
            own[contender.beams] = continue_prompts(model, untouched, prompts, store)
        other = continue_prompts(model, contender, prompts, store)
        differences = list_differences(model, prompts, own[contender.beams], other, contender.beams)
        findings[contender.name] = Finding(count_same(prompts, own[contender.beams], other), differences)
    return findings
