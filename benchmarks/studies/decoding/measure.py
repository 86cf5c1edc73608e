"""What a head costs and changes on dev and test, in process and over HTTP; and what CTranslate2 does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from shortlist.head import Head

from benchmarks.common.processes import Process, free_port, python_command

from .peers import Peers
from .plain import search_plainly
from .searches import BATCH, MAX_LENGTH, MODEL_NAME, CountingClient, Translations, count_changed, translate
from .study import Study

WARM_UP_SENTENCES = 50
TURNS = 2  # of which the faster one counts: other work on the machine slows one more than the other


@dataclass(frozen=True)
class BeamFigures:
    """One beam of a system. tokens: of all dev and test sentences. figures: by name, with their units."""

    tokens: list[list[int]]
    figures: dict[str, float]


@dataclass
class System:
    """A head, or CTranslate2. macs_ratio: times fewer multiply-adds than dense; 1 for CTranslate2."""

    name: str
    macs_ratio: float
    beams: dict[int, BeamFigures] = field(default_factory=dict)


def measure_beam(study: Study, head: Head, beam: int) -> BeamFigures:
    """A head with this beam: its words on dev and test, and what the test sentences take."""
    all_translations = study.search(head, study.sentences, beam)
    test = study.sentences[len(study.task.sources["dev"]) :]
    here = choose_fastest(lambda: study.search(head, test, beam))
    there = search_over_http(study, head, test, beam)
    figures = {
        "layer_us": round(here.meter.seconds / here.meter.rows * 1e6, 1),
        "seconds": round(here.seconds, 2),
        "http_seconds": round(there.seconds, 2),
        "calls": round(there.meter.calls / len(test), 4),
        "kib": round(there.meter.body_bytes / len(test) / 1024, 1),
    }
    return BeamFigures(all_translations.tokens, figures)


def choose_fastest(search: Callable[[], Translations]) -> Translations:
    """The fastest of `TURNS` searches."""
    return min((search() for _ in range(TURNS)), key=lambda translations: translations.seconds)


def search_over_http(study: Study, head: Head, sentences: list[list[int]], beam: int) -> Translations:
    """Translations by a server of this head."""
    root = study.folder / "served" / head.folder.parent.name
    (root / MODEL_NAME).mkdir(parents=True, exist_ok=True)
    link = root / MODEL_NAME / "1"
    if not link.is_symlink():
        link.symlink_to(head.folder.resolve())
    port = free_port()
    command = python_command("shortlist", "serve", root, "--port", port, "--threads", 1)
    with Process("decoding", command, port, study.folder / "logs") as server, CountingClient(server.url) as client:
        server.wait_ready(lambda: client.beam_step(MODEL_NAME, np.zeros((1, study.dense.dim)), [0.0], beam=1))
        translate(study.decoder, client, sentences[:WARM_UP_SENTENCES], beam)
        return choose_fastest(lambda: translate(study.decoder, client, sentences, beam))


def check_plainly(study: Study, beam: int) -> tuple[int, float]:
    """Sentences whose words by dense differ from a plain float64 search, and the largest difference of scores."""
    translations = study.search(study.full, study.sentences, beam)
    weight, bias = (np.asarray(each, np.float64) for each in (study.dense.weight, study.dense.bias))
    expected = [
        one
        for first in range(0, len(study.sentences), BATCH)
        for one in search_plainly(study.decoder, weight, bias, study.sentences[first : first + BATCH], beam, MAX_LENGTH)
    ]
    differences = [abs(each.score - score) for each, (_, score) in zip(translations.best, expected, strict=True)]
    return count_changed(translations.tokens, [words for words, _ in expected]), max(differences)


def translate_by_peer(study: Study, peers: Peers, beam: int, *, use_vmap: bool) -> BeamFigures:
    """CTranslate2 on dev and test."""
    answer = peers.translate(peers.convert(study.task), study.lines, beam, use_vmap=use_vmap)
    places = study.task.words[1].places
    tokens = [[places[word] for word in words] for words in answer["words"]]
    return BeamFigures(tokens, {"seconds, dev and test": round(answer["seconds"], 2)})
