import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from shortlist.errors import BadInput
from shortlist_exporter.capture.files import write_head
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.capture.run import capture
from shortlist_exporter.capture.texts import Text
from shortlist_exporter.capture.windows import cut_texts
from shortlist_exporter.inputs.sources import load_contexts, load_dense

from tests.support.layers import logits_of

from .tiny import WORDS, StopCapture, list_hidden_files, save_model, stop_after, words

WINDOW = 8
ATOL = 1e-4


def own_logits(model, windows):
    with torch.inference_mode():
        return model.model(torch.from_numpy(windows[:, :-1])).logits.float().numpy().reshape(-1, model.dense.classes)


def test_contexts_times_weights_are_the_model_s_logits(tmp_path, model, text):
    rows = capture(model, [Text(text)], tmp_path / "c.safetensors", window=WINDOW, batch=2)
    write_head(tmp_path / "h.safetensors", model.dense, "tiny")
    contexts, dense = load_contexts(tmp_path / "c.safetensors"), load_dense(tmp_path / "h.safetensors")
    windows = cut_texts([Text(text)], model.tokenizer, WINDOW, None)
    assert rows == len(contexts.contexts) == windows.rows
    real = slice(0, WORDS)
    result = logits_of(dense, contexts.contexts)[:, real]
    np.testing.assert_allclose(result, own_logits(model, windows.tokens)[:, real], atol=ATOL)
    np.testing.assert_array_equal(dense.padded, np.arange(WORDS, WORDS + 8))


def test_targets_are_the_next_tokens_and_documents_go_by_heading(tmp_path, model, text):
    capture(model, [Text(text), Text(text)], tmp_path / "c.safetensors", window=WINDOW)
    contexts = load_contexts(tmp_path / "c.safetensors")
    stream = model.tokenizer(text.read_text() * 2, add_special_tokens=False)["input_ids"]
    np.testing.assert_array_equal(contexts.targets, stream[1 : len(contexts.targets) + 1])
    assert np.unique(contexts.documents).tolist() == [0, 1, 2, 3, 4, 5]
    assert (np.diff(contexts.documents) >= 0).all()


@pytest.mark.parametrize("tokens", [1, 8, 9, 24])
def test_tokens_are_rounded_up_to_whole_windows(tmp_path, model, text, tokens):
    rows = capture(model, [Text(text)], tmp_path / "c.safetensors", rows=tokens, window=WINDOW)
    assert rows == -(-tokens // WINDOW) * WINDOW


@pytest.mark.parametrize("batch", [1, 3])
def test_a_stopped_capture_continues_and_ends_the_same(tmp_path, model, text, batch):
    whole, out = tmp_path / "whole.safetensors", tmp_path / "c.safetensors"
    capture(model, [Text(text)], whole, window=WINDOW, batch=batch)
    with pytest.raises(StopCapture):
        capture(model, [Text(text)], out, window=WINDOW, batch=batch, progress=stop_after(3 * WINDOW))
    assert not out.exists()
    assert list_hidden_files(tmp_path) == [".c.safetensors.parts"]
    row_counts = []
    capture(
        model,
        [Text(text)],
        out,
        window=WINDOW,
        batch=batch,
        progress=lambda stage, done, total: row_counts.append(done),
    )
    assert row_counts[0] >= 3 * WINDOW
    assert list_hidden_files(tmp_path) == []
    first, second = load_file(whole), load_file(out)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_other_arguments_start_again(tmp_path, model, text):
    out = tmp_path / "c.safetensors"
    with pytest.raises(StopCapture):
        capture(model, [Text(text)], out, window=WINDOW, batch=1, progress=stop_after(2 * WINDOW))
    row_counts = []
    capture(
        model,
        [Text(text)],
        out,
        window=2 * WINDOW,
        batch=1,
        progress=lambda stage, done, total: row_counts.append(done),
    )
    assert row_counts[0] == 0
    assert list_hidden_files(tmp_path) == []


def test_a_stopped_capture_leaves_the_earlier_file(tmp_path, model, text):
    out = tmp_path / "c.safetensors"
    capture(model, [Text(text)], out, rows=WINDOW, window=WINDOW)
    before = out.read_bytes()
    with pytest.raises(StopCapture):
        capture(model, [Text(text)], out, window=WINDOW, batch=1, progress=stop_after(WINDOW))
    assert out.read_bytes() == before


def test_float16(tmp_path, model, text):
    capture(model, [Text(text)], tmp_path / "full.safetensors", window=WINDOW)
    capture(model, [Text(text)], tmp_path / "half.safetensors", window=WINDOW, dtype="float16")
    with safe_open(tmp_path / "half.safetensors", framework="pt") as file:
        assert file.get_slice("contexts").get_dtype() == "F16"
    full, half = (load_contexts(tmp_path / f"{name}.safetensors").contexts for name in ("full", "half"))
    np.testing.assert_array_equal(half, full.astype(np.float16).astype(np.float32))


def test_the_file_names_the_kinds_of_its_documents(tmp_path, model, text):
    capture(model, [Text(text)], tmp_path / "c.safetensors", window=WINDOW)
    contexts = load_contexts(tmp_path / "c.safetensors")
    assert contexts.kinds == {text.stem: sorted(set(contexts.documents.tolist()))}
    np.testing.assert_array_equal(contexts.kind_rows[text.stem], np.arange(len(contexts.contexts)))


@pytest.mark.parametrize("tied", [True, False])
def test_tied_or_not(tmp_path, text, tied):
    layer = save_model(tmp_path / "m", tie_word_embeddings=tied)
    model = load_model(tmp_path / "m")
    np.testing.assert_array_equal(model.dense.weight, layer.get_output_embeddings().weight.detach().numpy())
    capture(model, [Text(text)], tmp_path / "c.safetensors", rows=16, window=WINDOW)
    windows = cut_texts([Text(text)], model.tokenizer, WINDOW, 16)
    result = logits_of(model.dense, load_contexts(tmp_path / "c.safetensors").contexts)
    np.testing.assert_allclose(result, own_logits(model, windows.tokens), atol=ATOL)


def test_a_text_shorter_than_a_window(tmp_path, model):
    (tmp_path / "t.txt").write_text(words(WINDOW))
    with pytest.raises(BadInput, match=f"{WINDOW} tokens.*window of {WINDOW}"):
        capture(model, [Text(tmp_path / "t.txt")], tmp_path / "c.safetensors", window=WINDOW)
    assert list_hidden_files(tmp_path) == []
