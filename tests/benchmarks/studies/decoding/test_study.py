"""The study in tiny form: contexts, candidates, both sides of the wire, causes, and the JSON line."""

import numpy as np
import pytest
from shortlist.errors import BadInput

from benchmarks.studies.decoding import heads, study
from benchmarks.studies.decoding.causes import MixedClient, count_causes
from benchmarks.studies.decoding.measure import System, check_plainly, measure_beam, search_over_http
from benchmarks.studies.decoding.results import Findings, describe_system, list_translations, make_line
from benchmarks.studies.decoding.searches import translate
from benchmarks.studies.decoding.study import Study
from benchmarks.studies.decoding.task import open_task
from tests.benchmarks.studies.decoding.tiny import SIZES, make_study

pytestmark = pytest.mark.slow

LARGE, SMALL = ({"basis": "context", "width": width, "full_view": view} for width, view in (("16", "600"), ("2", "4")))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("decoding"))


@pytest.fixture(scope="module")
def coarse(tiny):
    return heads.open_head(tiny.repository, tiny.dense, tiny.contexts, "svd", SMALL, 1)


def test_tuning_and_fitted_sentences_are_others(tiny):
    assert (len(tiny.fitted), len(tiny.tuning), len(tiny.sentences)) == (20, 20, SIZES["dev"] + SIZES["test"])
    assert len(tiny.contexts.contexts) > 100
    again = Study(tiny.task, tiny.folder, 20, 20)  # from the file
    np.testing.assert_array_equal(again.contexts.contexts, tiny.contexts.contexts)


def test_of_heads_that_are_cheap_enough_the_best_is_chosen(tiny, monkeypatch):
    monkeypatch.setattr(study, "CANDIDATES", {"svd": [SMALL, LARGE]})
    monkeypatch.setattr(study, "MOST_MACS", 10.0)
    chosen = tiny.choose_heads()["svd"]
    assert (chosen.place, chosen.changed) == (1, 0.0)
    monkeypatch.setattr(study, "MOST_MACS", 0.0)
    assert tiny.choose_heads()["svd"].place == 0  # by the trials that were kept
    assert tiny.open("svd", 0).manifest.fit["width"] == 2


@pytest.mark.parametrize("beam", [1, 3])
def test_words_over_http_are_those_in_process(tiny, coarse, beam):
    assert (
        search_over_http(tiny, coarse, tiny.sentences, beam).tokens == tiny.search(coarse, tiny.sentences, beam).tokens
    )


def test_dense_equals_a_plain_search(tiny):
    changed, difference = check_plainly(tiny, 3)
    assert changed == 0
    assert difference < 1e-5


def test_causes(tiny, coarse):
    dense = tiny.search(tiny.full, tiny.sentences, 3).tokens
    assert count_causes(tiny, tiny.full, dense, 3) == {"classes": 0, "normaliser": 0}
    assert max(count_causes(tiny, coarse, dense, 3).values()) > 0
    both = translate(tiny.decoder, MixedClient(coarse, coarse), tiny.sentences, 3)
    assert both.tokens == tiny.search(coarse, tiny.sentences, 3).tokens


def test_lines(tiny, coarse):
    systems = [System("full", 1.0), System("svd", 3.0)]
    for system, head in zip(systems, (tiny.full, coarse), strict=True):
        system.beams[5] = measure_beam(tiny, head, 5)
    translations = list_translations(tiny, systems)
    assert list(translations["systems"]) == ["full, beam 5", "svd, beam 5"]
    assert [len(lines) for lines in translations["systems"].values()] == [SIZES["test"]] * 2
    assert len(translations["references"]) == SIZES["test"]
    bleu = {"full, beam 5": 30.0, "svd, beam 5": 29.5}
    rows = {system.name: describe_system(system, systems[0], bleu) for system in systems}
    line = make_line(tiny, Findings(systems, "svd", {}, [(0, 1e-7), (1, 2e-7)]), rows)
    assert (line["bleu_dense"], line["bleu_head"], line["layer_macs_ratio"]) == (30.0, 29.5, 3.0)
    assert line["hypotheses_changed"] == rows["svd"]["beam 5"]["changed"] / len(tiny.sentences)
    assert (line["plain_differences"], line["plain_score_difference"]) == (1, 2e-7)
    assert line["http_ratio"] > 0


def test_without_texts(tmp_path):
    with pytest.raises(BadInput, match="give a folder with enja/"):
        open_task(tmp_path, tmp_path / "model", 1)
