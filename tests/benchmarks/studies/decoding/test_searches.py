"""Translations by a head, against a plain float64 search over the same small translator."""

import numpy as np
import pytest
from shortlist_exporter.inputs.sources import Contexts, Dense

from benchmarks.studies.decoding.plain import search_plainly
from benchmarks.studies.decoding.searches import HeadClient, count_changed, take_rows, translate
from examples.translate.corpus import load_vocabulary
from examples.translate.decode import Decoder
from examples.translate.model import Shape, Transformer, load_marian
from tests.examples.translate.test_translator import WORDS
from tests.support.layers import make_head

pytestmark = pytest.mark.slow

CLASSES, DIM = 40, 16
RANDOM = np.random.default_rng(0)
SOURCES = [[*RANDOM.integers(2, CLASSES, size).tolist(), 0] for size in RANDOM.integers(1, 6, 12)]


@pytest.fixture(scope="module")
def model():
    model = Transformer(Shape(CLASSES, CLASSES, dim=DIM, inner=32, heads=2, layers=1)).eval()
    random = np.random.default_rng(1)
    bias = model["decoder_ff_logit_out_b"].detach()
    bias[0] = 1.0
    model["decoder_ff_logit_out_W"].detach().numpy()[:] = random.standard_normal((DIM, CLASSES)) * 0.7
    return model


@pytest.mark.parametrize("beam", [1, 4])
def test_words_and_scores_are_those_of_a_plain_search(model, tmp_path, beam):
    weight, bias = (model[f"decoder_ff_logit_out_{name}"].detach().numpy() for name in ("W", "b"))
    dense = Dense(np.ascontiguousarray(weight.T), bias.copy())
    rows = Contexts(RANDOM.standard_normal((400, DIM)).astype(np.float32))
    head = make_head(tmp_path, dense, rows, method="full", options={})
    found = translate(Decoder(model), HeadClient(head), SOURCES, beam, keep=True)
    weight64, bias64 = dense.weight.astype(np.float64), bias.astype(np.float64)
    expected = search_plainly(Decoder(model), weight64, bias64, SOURCES, beam, 64)
    assert count_changed(found.tokens, [words for words, _ in expected]) == 0
    np.testing.assert_allclose([each.score for each in found.best], [score for _, score in expected], atol=1e-5)
    assert found.meter.calls > 1
    assert take_rows(found.meter.contexts, 20, 0).shape == (20, DIM)


def test_files_of_a_translator_are_read_again(model, tmp_path):
    model.save_marian(tmp_path / "model.npz")
    again = load_marian(tmp_path / "model.npz")
    assert again.shape.dim == DIM
    assert all((again[name] == model[name]).all() for name in model.parameters_by_name)
    WORDS.save(tmp_path / "vocab.yml")
    assert load_vocabulary(tmp_path / "vocab.yml") == WORDS
