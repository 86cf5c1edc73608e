"""The study's translator, its dense head, the contexts that heads are fitted to, and the heads that are chosen."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from shortlist.core.results import FloatArray
from shortlist.head import Head
from shortlist_exporter.inputs.sources import Contexts, Dense

from examples.translate.decode import Decoder

from .heads import CANDIDATES, DENSE, Trial, choose_trial, open_head
from .macs import measure_macs
from .searches import HeadClient, Translations, count_changed, take_rows, translate
from .task import Task

FITTED_SENTENCES, TUNING_SENTENCES = 8_000, 1_000
FITTED_ROWS, COUNTED_ROWS = 200_000, 10_000
COUNTED_K = 10  # what a beam of 5 asks for
MOST_MACS = 0.1  # of dense's


class Study:
    """task: the translator and its texts. fitted, tuning: training sentences; dev and test are `sentences`."""

    def __init__(
        self, task: Task, folder: Path, fitted: int = FITTED_SENTENCES, tuning: int = TUNING_SENTENCES
    ) -> None:
        """Open the dense head, and translate `fitted` sentences for their contexts where that is not done yet."""
        self.task, self.folder = task, folder
        torch.set_num_threads(1)
        self.decoder, self.dense = Decoder(task.model), task.make_dense()
        order = np.random.default_rng(0).permutation(len(task.sources["train"]))
        lines = [task.sources["train"][place] for place in order[: tuning + fitted]]
        self.tuning, self.fitted = (task.encode(part) for part in (lines[:tuning], lines[tuning:]))
        self.lines = task.sources["dev"] + task.sources["test"]
        self.sentences = task.encode(self.lines)
        self.repository = folder / f"repository-{fitted}"
        self.full = open_head(self.repository, self.dense, make_first_contexts(self.dense), DENSE, {}, 1)
        self.contexts = self.load_contexts()

    def load_contexts(self) -> Contexts:
        """What a search over the dense head asks for, on training sentences."""
        path = self.folder / f"contexts-{len(self.fitted)}.safetensors"
        if not path.is_file():
            translations = self.search(self.full, self.fitted, keep=True)
            save_file({"contexts": take_rows(translations.meter.contexts, FITTED_ROWS, 0)}, path)
        return Contexts(load_file(path)["contexts"])

    def search(self, head: Head, sentences: list[list[int]], beam: int = 5, *, keep: bool = False) -> Translations:
        """Translations by a head in this process."""
        return translate(self.decoder, HeadClient(head), sentences, beam, keep=keep)

    def open(self, method: str, place: int) -> Head:
        """The head of a candidate."""
        return open_head(self.repository, self.dense, self.contexts, method, CANDIDATES[method][place], 1)

    def choose_heads(self) -> dict[str, Trial]:
        """The best candidate of each method on the tuning sentences; trials are kept beside the bundles."""
        path, key = self.folder / "trials.json", json.dumps([len(self.fitted), CANDIDATES])
        if not path.is_file() or json.loads(path.read_text())["candidates"] != key:
            records = [asdict(trial) for trial in self.try_candidates()]
            path.write_text(json.dumps({"candidates": key, "trials": records}))
        trials = [Trial(**trial) for trial in json.loads(path.read_text())["trials"]]
        return {
            method: choose_trial([trial for trial in trials if trial.method == method], MOST_MACS)
            for method in CANDIDATES
        }

    def try_candidates(self) -> list[Trial]:
        """All candidates on the tuning sentences."""
        dense = self.search(self.full, self.tuning, keep=True)
        rows = take_rows(dense.meter.contexts, COUNTED_ROWS, 1)
        return [
            self.try_candidate(dense, rows, method, place)
            for method, candidates in CANDIDATES.items()
            for place in range(len(candidates))
        ]

    def try_candidate(self, dense: Translations, rows: FloatArray, method: str, place: int) -> Trial:
        """A candidate on the tuning sentences."""
        head = self.open(method, place)
        changed = count_changed(dense.tokens, self.search(head, self.tuning).tokens) / len(self.tuning)
        trial = Trial(method, place, changed, measure_macs(head, rows, COUNTED_K))
        print(
            f"{method} {CANDIDATES[method][place]}: {changed:.1%} changed, 1/{1 / trial.macs:.1f} multiply-adds",
            flush=True,
        )
        return trial


def make_first_contexts(dense: Dense) -> Contexts:
    """Contexts for a head that is fitted to none."""
    return Contexts(np.random.default_rng(0).standard_normal((600, dense.dim)).astype(np.float32))
