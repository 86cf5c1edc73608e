"""The translator of the examples, as small as it can be: it learns to copy, resumes, and decodes as it was trained."""

import numpy as np
import pytest
import shortlist
import torch
from shortlist_exporter.inputs.sources import Contexts, Dense

from examples.translate.corpus import END, Vocabulary, encode_pairs, pad_rows, read_lines
from examples.translate.decode import Decoder
from examples.translate.model import Shape, Transformer
from examples.translate.train import Plan, Trainer, main
from tests.support.layers import make_head

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(0)
LINES = [" ".join(RANDOM.choice(list("abcdefgh"), RANDOM.integers(2, 6))) for _ in range(400)]
WORDS = Vocabulary.count(LINES, 1)
PAIRS = encode_pairs(LINES, LINES, (WORDS, WORDS))
SHAPE = Shape(len(WORDS.words), len(WORDS.words), dim=32, inner=64, heads=2, layers=1, dropout=0.0)
PLAN = Plan(epochs=40, rows=40, rate=5e-3, warm_up=40, checkpoint_steps=1000)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    trainer = Trainer(SHAPE, PLAN, tmp_path_factory.mktemp("model"))
    trainer.train(PAIRS)
    return trainer


@pytest.fixture(scope="module")
def head(trainer, tmp_path_factory):
    model = trainer.model
    weight, bias = (model[f"decoder_ff_logit_out_{name}"].detach().numpy() for name in ("W", "b"))
    sources, mask = pad_rows(PAIRS.sources)
    contexts = model.decode(model.encode(sources, mask), mask, pad_rows(PAIRS.targets)[0])
    rows = Contexts(contexts.detach().flatten(0, 1).numpy())
    dense = Dense(np.ascontiguousarray(weight.T), bias)
    return make_head(tmp_path_factory.mktemp("head"), dense, rows, method="full", options={})


def test_words_and_ids():
    assert WORDS.words[:2] == ["</s>", "<unk>"]
    assert WORDS.encode("a z")[1:] == [1, END]
    assert WORDS.decode(WORDS.encode("b a")) == "b a"


def test_it_learns_to_copy(trainer, head):
    decoder = Decoder(trainer.model)
    state = decoder.start(PAIRS.sources[:50])
    found = shortlist.beam_search(decoder.step, head, state, [END] * 50, beam=3, eos=[END], max_length=12)
    copies = [WORDS.decode(best[0].tokens) == line for best, line in zip(found, LINES, strict=False)]
    assert np.mean(copies) > 0.9


def test_steps_give_the_contexts_of_the_whole_sentence(trainer):
    model, decoder = trainer.model.eval(), Decoder(trainer.model)
    sources, mask = pad_rows(PAIRS.sources[:3])
    targets = torch.tensor([[3, 4, 5, 0], [5, 5, 2, 0], [2, 9, 3, 0]])
    whole = model.decode(model.encode(sources, mask), mask, targets).detach().numpy()
    state = decoder.start(PAIRS.sources[:3])
    for place in range(4):
        tokens = targets[:, place - 1].numpy() if place else np.zeros(3, int)
        contexts, state = decoder.step(state, tokens, np.arange(3))
        np.testing.assert_allclose(contexts, whole[:, place], atol=1e-5)


def test_rates_rise_and_fall():
    rates = [PLAN.choose_rate(done, 400) for done in range(400)]
    assert max(rates) == rates[39] == PLAN.rate
    assert rates[-1] == pytest.approx(PLAN.rate / 360)
    for total in (1, 2, 7, 40, 41, 90):  # steps of a run that is shorter than the warm-up, or hardly longer
        rates = [PLAN.choose_rate(done, total) for done in range(total)]
        assert min(rates) > 0
        assert max(rates) == PLAN.rate
        assert rates == [*sorted(rates[: rates.index(PLAN.rate)]), *sorted(rates[rates.index(PLAN.rate) :])[::-1]]


def test_a_stopped_run_goes_on_where_it_was(tmp_path):
    plan = Plan(epochs=2, rows=40, checkpoint_steps=3, warm_up=5)
    whole = Trainer(SHAPE, plan, tmp_path / "whole")
    whole.train(PAIRS)
    first = Trainer(SHAPE, plan, tmp_path / "parts")
    first.train(PAIRS, steps=7)
    second = Trainer(SHAPE, plan, tmp_path / "parts")
    assert second.steps == 7
    second.train(PAIRS)
    assert second.steps == whole.steps == 20
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(second.model.state_dict()[name], value, rtol=0, atol=0)
    with pytest.raises(ValueError, match="checkpoint of another model or plan"):
        Trainer(SHAPE, Plan(epochs=3), tmp_path / "parts")


def test_only_newlines_end_sentences(tmp_path):
    (tmp_path / "text").write_bytes("a\u2028b\nc\x85d\x0ce\r\n\nf".encode())
    lines = read_lines(tmp_path / "text")
    assert [line.split() for line in lines] == [["a", "b"], ["c", "d", "e"], [], ["f"]]
    (tmp_path / "text").write_bytes(b"")
    assert read_lines(tmp_path / "text") == []


WRONG = {
    "fewer lines": (["a", "b"], ["a"], [], "there are 2 source lines and 1 target lines: make them pairs"),
    "no lines": ([], [], [], "there are no lines: give files of sentences"),
    "no epoch": (["a"], ["a"], ["--epochs", "0"], "--epochs and --threads are numbers from 1 on"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_trained_is_said_in_a_line(tmp_path, monkeypatch, name):
    *texts, flags, sentence = WRONG[name]
    for language, lines in zip(("source", "target"), texts, strict=True):
        (tmp_path / language).write_text("".join(f"{line}\n" for line in lines))
    files = [f"--{each}={tmp_path / each}" for each in ("source", "target", "out")]
    monkeypatch.setattr("sys.argv", ["train", *files, *flags])
    with pytest.raises(SystemExit, match=f"examples.translate.train: {sentence}"):
        main()
    assert not (tmp_path / "out").exists()


def test_model_files_are_marians(tmp_path):
    model = Transformer(SHAPE)
    model.save_marian(tmp_path / "model.npz")
    arrays = np.load(tmp_path / "model.npz")
    assert arrays["encoder_l1_self_Wq"].shape == (32, 32)
    assert arrays["decoder_l1_ffn_b1"].shape == (1, 64)
    settings = arrays["special:model.yml"].tobytes().decode()
    assert "dim-vocabs: [10, 10]" in settings
    assert settings.endswith("\0")
    WORDS.save(tmp_path / "vocab.yml")
    assert (tmp_path / "vocab.yml").read_text().splitlines()[0] == '"</s>": 0'
