"""Mixtape's page: steps are timed, ranks measured and drawn, bodies trained jointly, exact answers compared."""

import numpy as np
import pytest
import torch
from shortlist_exporter.inputs.sources import Contexts

from benchmarks.papers.adaptive.lazy import make_float64_distribution, measure_agreement
from benchmarks.papers.mixtape import heads, joint, reproduce, times
from benchmarks.papers.mixtape.ranks import draw_spectra, measure_spectrum
from benchmarks.papers.mixtape.reproduce import answer_exactly, format_joint
from tests.support.heads import mixtape
from tests.support.layers import make_contexts, make_dense

pytestmark = pytest.mark.slow


def test_steps_are_timed(monkeypatch):
    monkeypatch.setattr(times, "VOCABULARIES", (300, 600))
    monkeypatch.setattr(times, "STEP_BATCH", 16)
    steps = times.measure_steps(lambda *_: None)
    assert [(one.classes, one.name) for one in steps[:3]] == [
        (300, "softmax"), (300, "Mixtape, K = 4"), (300, "MoS, K = 15"),
    ]  # fmt: skip
    assert all(one.seconds > 0 for one in steps)
    assert times.format_steps(steps).count("| 600 |") == 3


def test_ranks_are_what_the_layers_allow(tmp_path):
    torch.manual_seed(0)
    contexts = torch.randn(60, 8)
    spectra = {
        "softmax": measure_spectrum(heads.Softmax(8, 300), contexts),
        "Mixtape": measure_spectrum(mixtape.make_module(300, 8), contexts),
    }
    assert spectra["softmax"].rank == 9
    assert spectra["Mixtape"].rank > 30
    draw_spectra(spectra, tmp_path / "ranks.png")
    assert (tmp_path / "ranks.png").stat().st_size > 10_000


def test_a_body_learns_with_every_head(monkeypatch, tmp_path):
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    monkeypatch.setattr(joint, "VOCABULARY", 30)
    monkeypatch.setattr(joint, "EPOCHS", 2)
    for split in ("train", "valid", "test"):  # each word follows the one before it nearly always
        words = (np.arange(8000 if split == "train" else 2000) % 40 + (rng.random() < 0.05)).astype(np.int32)
        np.save(tmp_path / f"{split}.npy", words)
    runs = {}
    for name in ("softmax, narrow", "Mixtape, K = 4", "MoS, K = 4"):
        runs[name] = [joint.train_or_load(name, 0, tmp_path, tmp_path, lambda *_: None)]
        assert runs[name][0].test < 15
        assert joint.train_or_load(name, 0, tmp_path / "gone", tmp_path, lambda *_: None) == runs[name][0]
    assert format_joint(runs).count("\n") == len(runs) + 2


def test_served_heads_are_timed_and_their_exact_answers_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(times, "WALL_TIME_ROWS", 30)
    classes, dim = mixtape.SIZES["loops"]
    module, contexts = mixtape.make_module(classes, dim), make_contexts(600, dim).contexts
    head, dense = times.export_heads("any", make_dense(classes, dim), Contexts(contexts), module, tmp_path)
    served = times.measure_served("any", head, dense, contexts)
    assert 0.9 < served.precision["searched"][0] <= 1
    assert [one.name for one in served.walls] == ["dense", "exact", "searched"]
    assert times.format_served([served]).count("| any |") == 3
    assert "exact, proved" not in served.precision, "a layer so small has no bounds"
    rows = torch.from_numpy(contexts[:20])
    truths = {
        "own": make_float64_distribution(module),
        "other": make_float64_distribution(mixtape.Mixtape(dim, classes)),
    }
    results = measure_agreement(answer_exactly(head), truths, rows, [1, 100])
    assert results["own"].wrong == 0
    assert results["own"].answers == 20 * 101
    assert results["other"].wrong > 1000


def test_sections_that_were_not_run_stay_as_the_page_has_them(tmp_path, monkeypatch):
    paths = {name: tmp_path / f"{name}.md" for name in reproduce.SECTIONS}
    monkeypatch.setattr(reproduce, "DOCS", tmp_path)
    assert reproduce.join_sections(paths) is None
    for name, path in paths.items():
        path.write_text(f"## {reproduce.SECTIONS[name][0]}\n\nold\n")
    page = reproduce.join_sections(paths)
    assert page.count("\nold\n") == len(paths)
    (tmp_path / reproduce.PAGE).write_text(page)
    for name, path in paths.items():
        path.unlink() if name != "served" else path.write_text("## Served\n\nnew\n")
    assert reproduce.join_sections(paths) == page.replace("## Served\n\nold", "## Served\n\nnew")


@pytest.mark.usefixtures("prove_small_layers")
def test_proved_answers_are_timed_beside_those_by_all_components(tmp_path, monkeypatch):
    monkeypatch.setattr(times, "WALL_TIME_ROWS", 5)
    classes, dim = mixtape.SIZES["loops"]
    module, contexts = mixtape.make_module(classes, dim), make_contexts(600, dim).contexts
    head, dense = times.export_heads("any", make_dense(classes, dim), Contexts(contexts), module, tmp_path)
    served = times.measure_served("any", head, dense, contexts)
    assert [one.name for one in served.walls] == ["dense", "exact", "exact, proved", "searched"]
    assert served.precision["exact, proved"] == (1, 1)
    assert "| any | exact, proved | 1.0000 | 1.0000 |" in times.format_served([served])
