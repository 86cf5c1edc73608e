"""Contexts that are kept apart to calibrate a promise."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from shortlist_exporter.export import export, promise, seal
from shortlist_exporter.export.promise import split_calibration
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.seal import describe_missed_promise
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.methods.registry import find_method

from tests.support.heads.grouped import DIM, PROMISE_CLASSES, PROMISE_OPTIONS, promise_contexts
from tests.support.layers import make_contexts, make_dense


@pytest.mark.parametrize("sizes", [(1, 1800, 200), (10, 440, 100), (1, 3000, 500)])
@pytest.mark.parametrize("seed", range(3))
def test_most_rows_are_left_to_fit_on_where_one_document_has_nearly_all(sizes, seed):
    given = replace(make_contexts(sum(sizes)), documents=np.repeat(np.arange(3), sizes).astype(np.int32))
    fit, calibration = split_calibration(find_method("grouped"), given, Request("grouped", seed=seed))
    assert len(fit.contexts) >= sum(sizes) // 2
    assert calibration is not None
    assert len(calibration.contexts) >= 200


def test_contexts_that_repeat_calibrate_nothing():
    given = Contexts(np.tile(make_contexts(50).contexts, (20, 1)))
    assert split_calibration(find_method("grouped"), given, Request("grouped")) == (given, None)
    given = Contexts(np.tile(make_contexts(380).contexts, (5, 1)))
    assert split_calibration(find_method("grouped"), given, Request("grouped")) == (given, None), "half of 380"


@pytest.mark.parametrize("seed", range(10))
def test_every_kind_of_text_calibrates_in_its_share(seed):
    kinds = {str(kind): list(range(kind, 50, 5)) for kind in range(5)}
    given = replace(make_contexts(5000), documents=np.repeat(np.arange(50), 100).astype(np.int32), kinds=kinds)
    _, calibration = split_calibration(find_method("grouped"), given, Request("grouped", seed=seed))
    assert calibration is not None
    assert {name: len(rows) for name, rows in calibration.kind_rows.items()} == dict.fromkeys(kinds, 100)


def test_a_kind_of_few_documents_is_never_kept_from_the_fit_nor_from_the_calibration():
    documents, kinds = np.repeat(np.arange(21), 100).astype(np.int32), {"rare": [0], "frequent": list(range(1, 21))}
    given = replace(make_contexts(2100), documents=documents, kinds=kinds)
    for seed in range(20):
        fit, calibration = split_calibration(find_method("grouped"), given, Request("grouped", seed=seed))
        assert calibration is not None
        assert "rare" in fit.kind_rows
        assert "rare" in calibration.kind_rows


def find_missed(rows: int, least: float | None, shares: dict[int, float]) -> list[str]:
    """What an export says of a head that is to keep `least`, by P@k on so many rows held out."""
    draft = SimpleNamespace(promise=least, normalizer="estimated", find_promise=lambda normalizer, k: least)
    quality = SimpleNamespace(rows=rows, p_at_1=shares[1], p_at_5=shares.get(5, 1), p_at_10=1, p_at=shares)
    return describe_missed_promise(draft, quality)


@pytest.mark.parametrize(("p_at_1", "rows", "promise", "said"), [
    (0.98, 1000, 0.99, True), (0.98, 100, 0.99, False), (0.995, 4000, 0.999, True), (0.992, 4000, 0.99, False),
    (0.9, 4000, None, False),
])  # fmt: skip
def test_an_export_says_where_held_out_contexts_break_the_promise_by_more_than_chance(p_at_1, rows, promise, said):
    notes = find_missed(rows, promise, {1: p_at_1})
    assert len(notes) == said
    assert all(f"P@1 is {p_at_1:.4f} on {rows:,} held-out contexts, under the promise" in note for note in notes)


def test_an_export_says_so_of_every_k_that_it_measured():
    """P@1 alone was looked at, although answers of every k state the promise."""
    notes = find_missed(4000, 0.99, {1: 0.995, 5: 0.97, 10: 0.96, 20: 0.99})
    assert [note.partition(":")[0] for note in notes] == [
        "P@5 is 0.9700 and P@10 is 0.9600 on 4,000 held-out contexts, under the promise of 0.99"
    ]


def test_the_manifest_of_a_head_that_breaks_its_promise_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(seal, "describe_missed_promise", lambda draft, quality: [f"{draft.promise} {quality.rows}"])
    request = Request(method="grouped", options=PROMISE_OPTIONS, report=False)
    manifest = export(make_dense(PROMISE_CLASSES, DIM), promise_contexts, tmp_path / "a" / "1", request)
    assert "0.99 800" in manifest.provenance["notes"]


def test_a_large_layer_is_calibrated_on_as_many_contexts_as_are_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(promise, "MAX_CALIBRATION_LOGITS", 0)
    monkeypatch.setattr(promise, "LEAST_CALIBRATION_ROWS", 230)
    totals: dict[int, None] = {}  # of contexts that got exact answers, in turn

    def note(stage: str, done: int, total: int) -> None:
        if stage == "exact answers":
            totals[total] = None

    request = Request(method="grouped", options=PROMISE_OPTIONS, report=False)
    export(make_dense(PROMISE_CLASSES, DIM), promise_contexts, tmp_path / "a" / "1", request, note)
    assert list(totals) == [230, 800]  # those that calibrate, of a tenth of the fit rows, and those held out


def test_progress_names_each_part_of_a_calibration(tmp_path):
    stages: list[tuple[str, int, int]] = []
    request = Request(method="grouped", options=PROMISE_OPTIONS, report=False)
    export(
        make_dense(PROMISE_CLASSES, DIM),
        promise_contexts,
        tmp_path / "a" / "1",
        request,
        lambda *stage: stages.append(stage),
    )
    parts = ("widths of looks", "estimates of what looks miss", "estimates for lists", "estimates for bans")
    assert [stage for stage in stages if stage[0] in parts] == [(part, done, 4) for done, part in enumerate(parts)]
