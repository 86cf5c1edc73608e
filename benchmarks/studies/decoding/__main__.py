"""A translator whose output layer is a head: in process, over HTTP, beside CTranslate2. `make bench-decoding`.

  python -m benchmarks.studies.decoding --data DATA

Trains the translator of the examples on DATA/enja (English to Japanese) where it is missing, exports its output layer,
and translates the dev and test sentences with beams 1 and 5. Heads are fitted to contexts of training text, and told
apart on other training sentences. The last line is JSON. bleu_dense, bleu_head: BLEU of test with the dense layer and
with the chosen head, beam 5. hypotheses_changed: share of the dev and test sentences whose best hypothesis the head
changes. layer_macs_ratio: times fewer multiply-adds. http_ratio: time of the test set over HTTP, over in process.
plain_differences: sentences whose words differ from a plain float64 search, of both beams.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import shortlist
import torch
from safetensors.numpy import load_file, save_file
from shortlist.head import Head
from shortlist_exporter.inputs.sources import Contexts, Dense

from benchmarks.common.command import make_parser, run_command
from benchmarks.common.processes import Process, free_port, python_command
from examples.translate.decode import Decoder

from .heads import CANDIDATES, COUNTED_ROWS, DENSE, Trial, choose_trial, measure_macs, open_head
from .peers import Peers
from .plain import search_plainly
from .searches import (
    BATCH,
    MAX_LENGTH,
    MODEL_NAME,
    HeadClient,
    Translations,
    count_changed,
    take_rows,
    translate,
)
from .task import Task, open_task

MODULE = "benchmarks.studies.decoding"
FITTED_SENTENCES, TUNING_SENTENCES = 2_500, 1_000
FITTED_ROWS = 100_000
BEAMS = (1, 5)
MOST_CHANGED = 0.005  # of the tuning sentences: half of what may be changed in the end


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__, cache="the translator, contexts and bundles stay here")
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="folder with enja/")
    add("--threads", type=int, default=2, help="threads of the training (default: %(default)s)")
    add("--peers", type=Path, default=Path("build/venvs/translators/bin/python"), help="Python of CTranslate2")
    return parser.parse_args()


class Study:
    """The translator, its dense head, and the contexts that heads are fitted to."""

    def __init__(self, data: Path, folder: Path, threads: int) -> None:
        self.folder = folder
        self.task: Task = open_task(data, folder / "model", threads)
        torch.set_num_threads(1)
        self.decoder, self.dense = Decoder(self.task.model), self.task.make_dense()
        order = np.random.default_rng(0).permutation(len(self.task.sources["train"]))
        lines = [self.task.sources["train"][place] for place in order[: FITTED_SENTENCES + TUNING_SENTENCES]]
        self.fitted, self.tuning = (
            self.task.encode(part) for part in (lines[:FITTED_SENTENCES], lines[FITTED_SENTENCES:])
        )
        self.lines = self.task.sources["dev"] + self.task.sources["test"]
        self.sentences = self.task.encode(self.lines)
        self.full = open_head(folder / "repository", self.dense, make_first_contexts(self.dense), DENSE, {}, 1)
        self.contexts = self.load_contexts()

    def load_contexts(self) -> Contexts:
        """What a search over the dense head asks for, on training sentences."""
        path = self.folder / "contexts.safetensors"
        if not path.is_file():
            found = self.search(self.full, self.fitted, keep=True)
            save_file({"contexts": take_rows(found.meter.contexts, FITTED_ROWS, 0)}, path)
        return Contexts(load_file(path)["contexts"])

    def search(self, head: Head, sentences: list[list[int]], beam: int = 5, *, keep: bool = False) -> Translations:
        """Translations by a head in this process."""
        return translate(self.decoder, HeadClient(head), sentences, beam, keep=keep)

    def open(self, method: str, place: int) -> Head:
        """The head of a candidate."""
        return open_head(self.folder / "repository", self.dense, self.contexts, method, CANDIDATES[method][place], 1)

    def choose_heads(self) -> dict[str, Trial]:
        """The best candidate of each method on the tuning sentences; kept beside the bundles."""
        path, key = self.folder / "trials.json", json.dumps(CANDIDATES)
        if not path.is_file() or json.loads(path.read_text())["candidates"] != key:
            dense = self.search(self.full, self.tuning, keep=True)
            rows = take_rows(dense.meter.contexts, COUNTED_ROWS // 4, 1)
            trials = [
                self.try_candidate(dense, rows, method, place)
                for method in CANDIDATES
                for place in range(len(CANDIDATES[method]))
            ]
            path.write_text(json.dumps({"candidates": key, "trials": [vars(trial) for trial in trials]}))
        trials = [Trial(**trial) for trial in json.loads(path.read_text())["trials"]]
        return {
            method: choose_trial([trial for trial in trials if trial.method == method], MOST_CHANGED)
            for method in CANDIDATES
        }

    def try_candidate(self, dense: Translations, rows: np.ndarray, method: str, place: int) -> Trial:
        """A candidate on the tuning sentences."""
        head = self.open(method, place)
        changed = count_changed(dense.tokens, self.search(head, self.tuning).tokens) / len(self.tuning)
        trial = Trial(method, place, changed, measure_macs(head, rows))
        say(f"{method} {dict(CANDIDATES[method][place])}: {changed:.1%} changed, 1/{1 / trial.macs:.1f} multiply-adds")
        return trial


def say(sentence: str) -> None:
    print(sentence, flush=True)


def make_first_contexts(dense: Dense) -> Contexts:
    """Contexts for a head that is fitted to none."""
    return Contexts(np.random.default_rng(0).standard_normal((600, dense.dim)).astype(np.float32))


def search_over_http(study: Study, head: Head, sentences: list[list[int]], beam: int) -> Translations:
    """Translations by a server of this head."""
    root = study.folder / "served" / head.folder.parent.name
    (root / MODEL_NAME).mkdir(parents=True, exist_ok=True)
    link = root / MODEL_NAME / "1"
    if not link.is_symlink():
        link.symlink_to(head.folder.resolve())
    port = free_port()
    command = python_command("shortlist", "serve", root, "--port", port, "--threads", 1)
    with Process("decoding", command, port, study.folder / "logs") as server, shortlist.Client(server.url) as client:
        server.wait_ready(lambda: client.beam_step(MODEL_NAME, np.zeros((1, study.dense.dim)), [0.0], beam=1))
        translate(study.decoder, client, sentences[:50], beam)
        return translate(study.decoder, client, sentences, beam)


def check_plainly(study: Study, found: Translations, beam: int) -> tuple[int, float]:
    """Sentences that differ from a plain float64 search, and the largest difference of scores."""
    weight, bias = (np.asarray(each, np.float64) for each in (study.dense.weight, study.dense.bias))
    expected = [
        one
        for first in range(0, len(study.sentences), BATCH)
        for one in search_plainly(study.decoder, weight, bias, study.sentences[first : first + BATCH], beam, MAX_LENGTH)
    ]
    differences = [abs(each.score - score) for each, (_, score) in zip(found.best, expected, strict=True)]
    return count_changed(found.tokens, [words for words, _ in expected]), max(differences)


def measure_head(study: Study, name: str, head: Head, macs: float) -> dict[str, object]:
    """A row of the table: both beams over dev and test, the test set in process and over HTTP."""
    row: dict[str, object] = {"head": name, "macs_ratio": round(1 / macs, 2)}
    test = study.sentences[len(study.task.sources["dev"]) :]
    for beam in BEAMS:
        found = study.search(head, study.sentences, beam)
        here = min((study.search(head, test, beam) for _ in range(2)), key=lambda one: one.seconds)
        there = search_over_http(study, head, test, beam)
        row |= {
            f"tokens{beam}": found.tokens,
            f"found{beam}": found,
            f"layer_us{beam}": round(here.meter.seconds / here.meter.rows * 1e6, 1),
            f"seconds{beam}": round(here.seconds, 2),
            f"http_seconds{beam}": round(there.seconds, 2),
            f"calls{beam}": round(there.meter.calls / len(test), 4),
            f"kib{beam}": round((there.meter.sent + there.meter.received) / len(test) / 1024, 1),
        }
        say(f"{name}, beam {beam}: { ({key: value for key, value in row.items() if key[0] not in 'tf'}) }")
    return row


def run_study(args: argparse.Namespace) -> None:
    """Measure and print the tables and the JSON line."""
    study = Study(args.data, args.cache / "decoding", args.threads)
    peers = Peers(args.peers, args.cache / "decoding" / "peers")
    chosen = study.choose_heads()
    rows = [measure_head(study, DENSE, study.full, 1.0)]
    for method, trial in chosen.items():
        head = study.open(method, trial.place)
        rows.append(measure_head(study, method, head, measure_macs(head, study.contexts.contexts[:COUNTED_ROWS])))
    plain = [check_plainly(study, rows[0][f"found{beam}"], beam) for beam in BEAMS]  # type: ignore[arg-type]
    print_results(study, peers, rows, plain, choose_trial(list(chosen.values()), MOST_CHANGED).method)


def print_results(
    study: Study, peers: Peers, rows: list[dict[str, object]], plain: list[tuple[int, float]], best: str
) -> None:
    """The tables of heads and of CTranslate2, then the JSON line."""
    words = study.task.words[1]
    for beam in BEAMS:
        rows += [translate_by_peer(study, peers, beam, use_vmap=use_vmap) for use_vmap in (False, True)]
    test = len(study.task.sources["dev"])
    systems = {
        f"{row['head']}, beam {beam}": [words.decode(tokens) for tokens in row[f"tokens{beam}"][test:]]  # type: ignore[index]
        for beam in reversed(BEAMS)
        for row in rows
        if f"tokens{beam}" in row
    }
    scores = peers.ask("bleu", {"systems": systems, "references": study.task.targets["test"]})
    for row in rows:
        for beam in (one for one in BEAMS if f"tokens{one}" in row):
            row[f"changed{beam}"] = count_changed(row[f"tokens{beam}"], rows[0][f"tokens{beam}"])  # type: ignore[arg-type]
            row[f"bleu{beam}"] = round(scores["bleu"][f"{row['head']}, beam {beam}"], 2)
        say(json.dumps({key: value for key, value in row.items() if not key.startswith(("tokens", "found"))}))
    say(f"paired bootstrap against the first (mean, interval, p): {json.dumps(scores['bootstrap'])}")
    say(f"sacrebleu {scores['signature']}")
    head = next(row for row in rows if row["head"] == best)
    figures = {
        "head": best,
        "bleu_dense": rows[0]["bleu5"],
        "bleu_head": head["bleu5"],
        "hypotheses_changed": int(str(head["changed5"])) / len(study.sentences),
        "layer_macs_ratio": head["macs_ratio"],
        "http_ratio": round(float(str(head["http_seconds5"])) / float(str(head["seconds5"])), 2),
        "plain_differences": sum(count for count, _ in plain),
        "plain_score_difference": max(difference for _, difference in plain),
    }
    print(json.dumps(figures))


def translate_by_peer(study: Study, peers: Peers, beam: int, *, use_vmap: bool) -> dict[str, object]:
    """CTranslate2 on dev and test."""
    folder = peers.convert(study.task)
    answer = peers.translate(folder, study.lines, beam, use_vmap=use_vmap)
    places = study.task.words[1].places
    name = "CTranslate2, vmap" if use_vmap else "CTranslate2"
    tokens = [[places[word] for word in words] for words in answer["words"]]
    return {"head": name, f"tokens{beam}": tokens, f"seconds{beam}, dev and test": round(answer["seconds"], 2)}


def main() -> int:
    args = parse_arguments()
    return run_command(MODULE, lambda: run_study(args))


if __name__ == "__main__":
    sys.exit(main())
