import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from shortlist.errors import BadInput
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.capture.sampling import capture_samples, draw_next, draw_start, list_starts, sample_texts

from .tiny import WORDS, StopCapture, list_hidden_files, save_model, save_tokenizer, stop_after

WINDOW = 8
ATOL = 1e-4


def load_rows(path):
    tensors = load_file(path)
    return tensors["contexts"], tensors["targets"], tensors["documents"]


def test_states_are_the_model_s_over_the_text_it_made_up(tmp_path, model):
    rows = capture_samples(model, tmp_path / "c.safetensors", rows=50, window=WINDOW, batch=3)
    contexts, targets, documents = load_rows(tmp_path / "c.safetensors")
    assert rows == len(contexts) == 56
    np.testing.assert_array_equal(documents, np.repeat(np.arange(7), WINDOW))
    follows = targets.reshape(-1, WINDOW)
    for start in list_starts(model):
        states = model.hidden_states(torch.tensor([[start, *follows[0, :-1]]]))[0].numpy()
        if np.allclose(states, contexts[:WINDOW], atol=ATOL):
            return
    pytest.fail("no start gives these states")


def test_samples_depend_on_the_seed_and_not_on_the_batch(tmp_path, model):
    outs = [tmp_path / f"{name}.safetensors" for name in "abc"]
    for out, batch, seed in zip(outs, (1, 5, 5), (0, 0, 1), strict=True):
        capture_samples(model, out, rows=5 * WINDOW, window=WINDOW, batch=batch, seed=seed)
    first, second, third = map(load_rows, outs)
    np.testing.assert_array_equal(first[1], second[1])
    np.testing.assert_allclose(first[0], second[0], atol=ATOL)
    assert (first[1] != third[1]).any()


def test_a_stopped_sampling_continues_and_ends_the_same(tmp_path, model):
    whole, out = tmp_path / "whole.safetensors", tmp_path / "c.safetensors"
    options = {"rows": 6 * WINDOW, "window": WINDOW, "batch": 2}
    capture_samples(model, whole, **options)
    with pytest.raises(StopCapture):
        capture_samples(model, out, progress=stop_after(2 * WINDOW), **options)
    assert not out.exists()
    row_counts = []
    capture_samples(model, out, progress=lambda stage, done, total: row_counts.append(done), **options)
    assert row_counts[0] == 2 * WINDOW
    assert list_hidden_files(tmp_path) == []
    for expected, result in zip(load_rows(whole), load_rows(out), strict=True):
        np.testing.assert_array_equal(expected, result)


def test_tokens_are_drawn_by_their_probability():
    draws = (np.arange(1000) + 0.5) / 1000
    logits = torch.log(torch.tensor([0.2, 0.0, 0.5, 0.3])).expand(1000, -1)
    np.testing.assert_array_equal(np.bincount(draw_next(logits, draws)), [200, 0, 500, 300])


def test_a_token_without_probability_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]]).expand(2, -1)
    assert draw_next(logits, np.array([0.0, 1 - 1e-12])).tolist() == [1, 2]


def test_padding_and_special_tokens_neither_start_a_text_nor_is_padding_drawn(tmp_path, model):
    np.testing.assert_array_equal(list_starts(model), np.arange(1, WORDS))
    capture_samples(model, tmp_path / "c.safetensors", rows=400, window=WINDOW)
    assert load_rows(tmp_path / "c.safetensors")[1].max() < WORDS


def test_a_text_that_has_ended_is_followed_by_a_new_start(tmp_path):
    save_model(tmp_path / "m", eos_token_id=[3, 7])
    model = load_model(tmp_path / "m")
    starts = list_starts(model)
    assert model.ends == [3, 7]
    np.testing.assert_array_equal(starts, np.setdiff1d(np.arange(1, WORDS), [3, 7]))
    draws = np.random.default_rng(0).random((20, 40))
    _, tokens = sample_texts(model, draws)
    row, place = np.nonzero(np.isin(tokens[:, :-1], [3, 7]))
    assert len(row) > 20
    np.testing.assert_array_equal(tokens[row, place + 1], draw_start(starts, draws[row, place + 1]))


def test_a_beginning_of_sequence_stands_before_every_text_and_gives_no_row(tmp_path):
    save_model(tmp_path / "m", bos_token_id=0)
    save_tokenizer(tmp_path / "m", begin=True)
    model = load_model(tmp_path / "m")
    capture_samples(model, tmp_path / "c.safetensors", rows=WINDOW, window=WINDOW)
    contexts, targets, _ = load_rows(tmp_path / "c.safetensors")
    starts = [model.hidden_states(torch.tensor([[start, *targets[:-1]]]))[0].numpy() for start in list_starts(model)]
    assert any(np.allclose(states, contexts, atol=ATOL) for states in starts)


def test_a_window_longer_than_the_model_reads(tmp_path, model):
    with pytest.raises(BadInput, match=r"--window 65 is over the 64 tokens"):
        capture_samples(model, tmp_path / "c.safetensors", window=65)
