"""The study's tables and its JSON line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .measure import System
from .peers import Peers
from .searches import count_changed
from .study import Study

WIDE = 5  # the beam that the JSON line is about


@dataclass(frozen=True)
class Findings:
    """systems: the first is dense. best: name of the chosen head. plain: of each beam, as `check_plainly` gives."""

    systems: list[System]
    best: str
    causes: dict[str, int]
    plain: list[tuple[int, float]]


def print_results(study: Study, peers: Peers, findings: Findings) -> None:
    """Print a line a system, the paired bootstrap, and JSON last."""
    scores = peers.ask("bleu", list_translations(study, findings.systems))
    dense, rows = findings.systems[0], {}
    for system in findings.systems:
        rows[system.name] = describe_system(system, dense, scores["bleu"])
        print(json.dumps(rows[system.name]), flush=True)
    print(f"paired bootstrap against the first (mean, interval, p): {json.dumps(scores['bootstrap'])}")
    print(f"sacrebleu {scores['signature']}")
    print(f"changed by one cause alone, of dev and test: {json.dumps(findings.causes)}")
    print(json.dumps(make_line(study, findings, rows)), flush=True)


def list_translations(study: Study, systems: list[System]) -> dict[str, Any]:
    """The test sentences' translations by every system and beam, dense with the wide beam first."""
    words, test = study.task.words[1], len(study.task.sources["dev"])
    beams = sorted({beam for system in systems for beam in system.beams}, reverse=True)
    translations = {
        name_run(system, beam): [words.decode(tokens) for tokens in system.beams[beam].tokens[test:]]
        for beam in beams
        for system in systems
    }
    return {"systems": translations, "references": study.task.targets["test"]}


def name_run(system: System, beam: int) -> str:
    """What a system with a beam is called."""
    return f"{system.name}, beam {beam}"


def describe_system(system: System, dense: System, bleu: dict[str, float]) -> dict[str, Any]:
    """A line of the table."""
    line: dict[str, Any] = {"head": system.name, "macs_ratio": round(system.macs_ratio, 2)}
    for beam, run in system.beams.items():
        line[f"beam {beam}"] = run.figures | {
            "changed": count_changed(run.tokens, dense.beams[beam].tokens),
            "bleu": round(bleu[name_run(system, beam)], 2),
        }
    return line


def make_line(study: Study, findings: Findings, rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The JSON line."""
    wide = f"beam {WIDE}"
    dense, best = rows[findings.systems[0].name], rows[findings.best]
    return {
        "head": findings.best,
        "bleu_dense": dense[wide]["bleu"],
        "bleu_head": best[wide]["bleu"],
        "hypotheses_changed": best[wide]["changed"] / len(study.sentences),
        "layer_macs_ratio": best["macs_ratio"],
        "http_ratio": round(best[wide]["http_seconds"] / best[wide]["seconds"], 2),
        "plain_differences": sum(count for count, _ in findings.plain),
        "plain_score_difference": max(difference for _, difference in findings.plain),
    }
