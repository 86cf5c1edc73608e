import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from shortlist.errors import BadInput, NotFound, ShortlistError
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.capture.run import capture, cut_windows, read_texts, write_head, write_labels
from shortlist_exporter.inputs.sources import load_contexts, load_dense

from tests.support.layers import logits_of

from .tiny import WORDS, list_hidden_files, save_model, save_tokenizer, words

WINDOW = 8
ATOL = 1e-4


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(model_folder)


class StopCapture(Exception):
    """Stands for a killed process."""


def stop_after(rows):
    def progress(stage, done, total):
        if done >= rows:
            raise StopCapture

    return progress


def own_logits(model, windows):
    with torch.inference_mode():
        return model.model(torch.from_numpy(windows[:, :-1])).logits.float().numpy().reshape(-1, model.dense.classes)


def test_contexts_times_weights_are_the_model_s_logits(tmp_path, model, text):
    rows = capture(model, [text], tmp_path / "c.safetensors", window=WINDOW, batch=2)
    write_head(tmp_path / "h.safetensors", model.dense, "tiny")
    contexts, dense = load_contexts(tmp_path / "c.safetensors"), load_dense(tmp_path / "h.safetensors")
    windows = cut_windows(read_texts([text]), model.tokenizer, WINDOW, None)
    assert rows == len(contexts.contexts) == windows.rows
    real = slice(0, WORDS)
    result = logits_of(dense, contexts.contexts)[:, real]
    np.testing.assert_allclose(result, own_logits(model, windows.tokens)[:, real], atol=ATOL)
    np.testing.assert_array_equal(dense.padded, np.arange(WORDS, WORDS + 8))


def test_targets_are_the_next_tokens_and_documents_go_by_heading(tmp_path, model, text):
    capture(model, [text, text], tmp_path / "c.safetensors", window=WINDOW)
    contexts = load_contexts(tmp_path / "c.safetensors")
    stream = model.tokenizer(text.read_text() * 2, add_special_tokens=False)["input_ids"]
    np.testing.assert_array_equal(contexts.targets, stream[1 : len(contexts.targets) + 1])
    assert np.unique(contexts.documents).tolist() == [0, 1, 2, 3, 4, 5]
    assert (np.diff(contexts.documents) >= 0).all()


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("no heading\nat all", 1),
        (" = One = \na\n = = Part = = \nb\n = Two = \nc\n", 2),
        ("Title\n\nChapter 1\n\na\n\nChapter II\n\nb\n", 3),
        ("in Chapter 1\nof this\n", 1),
    ],
)
def test_documents(tmp_path, text, documents):
    path = tmp_path / "t.txt"
    path.write_text(text)
    assert len(read_texts([path])) == documents
    assert "".join(read_texts([path])) == text


@pytest.mark.parametrize("tokens", [1, 8, 9, 24])
def test_tokens_are_rounded_up_to_whole_windows(tmp_path, model, text, tokens):
    rows = capture(model, [text], tmp_path / "c.safetensors", rows=tokens, window=WINDOW)
    assert rows == -(-tokens // WINDOW) * WINDOW


@pytest.mark.parametrize("batch", [1, 3])
def test_a_stopped_capture_continues_and_ends_the_same(tmp_path, model, text, batch):
    whole, out = tmp_path / "whole.safetensors", tmp_path / "c.safetensors"
    capture(model, [text], whole, window=WINDOW, batch=batch)
    with pytest.raises(StopCapture):
        capture(model, [text], out, window=WINDOW, batch=batch, progress=stop_after(3 * WINDOW))
    assert not out.exists()
    assert list_hidden_files(tmp_path) == [".c.safetensors.parts"]
    row_counts = []
    capture(model, [text], out, window=WINDOW, batch=batch, progress=lambda stage, done, total: row_counts.append(done))
    assert row_counts[0] >= 3 * WINDOW
    assert list_hidden_files(tmp_path) == []
    first, second = load_file(whole), load_file(out)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_other_arguments_start_again(tmp_path, model, text):
    out = tmp_path / "c.safetensors"
    with pytest.raises(StopCapture):
        capture(model, [text], out, window=WINDOW, batch=1, progress=stop_after(2 * WINDOW))
    row_counts = []
    capture(model, [text], out, window=2 * WINDOW, batch=1, progress=lambda stage, done, total: row_counts.append(done))
    assert row_counts[0] == 0
    assert list_hidden_files(tmp_path) == []


def test_a_stopped_capture_leaves_the_earlier_file(tmp_path, model, text):
    out = tmp_path / "c.safetensors"
    capture(model, [text], out, rows=WINDOW, window=WINDOW)
    before = out.read_bytes()
    with pytest.raises(StopCapture):
        capture(model, [text], out, window=WINDOW, batch=1, progress=stop_after(WINDOW))
    assert out.read_bytes() == before


def test_float16(tmp_path, model, text):
    capture(model, [text], tmp_path / "full.safetensors", window=WINDOW)
    capture(model, [text], tmp_path / "half.safetensors", window=WINDOW, dtype="float16")
    with safe_open(tmp_path / "half.safetensors", framework="pt") as file:
        assert file.get_slice("contexts").get_dtype() == "F16"
    full, half = (load_contexts(tmp_path / f"{name}.safetensors").contexts for name in ("full", "half"))
    np.testing.assert_array_equal(half, full.astype(np.float16).astype(np.float32))


def test_a_text_shorter_than_a_window(tmp_path, model):
    (tmp_path / "t.txt").write_text(words(WINDOW))
    with pytest.raises(BadInput, match=f"{WINDOW} tokens.*window of {WINDOW}"):
        capture(model, [tmp_path / "t.txt"], tmp_path / "c.safetensors", window=WINDOW)
    assert list_hidden_files(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_a_text_without_words(tmp_path, content):
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(BadInput, match="no text"):
        read_texts([tmp_path / "t.txt"])


def test_a_text_that_is_not_utf8(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"caf\xe9 au lait")
    with pytest.raises(BadInput, match=r"UTF-8.*byte 3"):
        read_texts([tmp_path / "t.txt"])


def test_a_missing_text(tmp_path):
    with pytest.raises(NotFound, match=r"absent\.txt"):
        read_texts([tmp_path / "absent.txt"])


@pytest.mark.parametrize("tied", [True, False])
def test_tied_or_not(tmp_path, text, tied):
    layer = save_model(tmp_path / "m", tie_word_embeddings=tied)
    model = load_model(tmp_path / "m")
    np.testing.assert_array_equal(model.dense.weight, layer.get_output_embeddings().weight.detach().numpy())
    capture(model, [text], tmp_path / "c.safetensors", rows=16, window=WINDOW)
    windows = cut_windows(read_texts([text]), model.tokenizer, WINDOW, 16)
    result = logits_of(model.dense, load_contexts(tmp_path / "c.safetensors").contexts)
    np.testing.assert_allclose(result, own_logits(model, windows.tokens), atol=ATOL)


def test_every_user_may_read_the_weights(tmp_path, model):
    write_head(tmp_path / "h.safetensors", model.dense, "tiny")
    write_labels(tmp_path / "labels.json", ["\ud800"])
    assert (tmp_path / "h.safetensors").stat().st_mode == (tmp_path / "labels.json").stat().st_mode
    assert json.loads((tmp_path / "labels.json").read_text()) == ["\ud800"]


def test_a_folder_that_is_no_model(tmp_path):
    save_tokenizer(tmp_path)
    with pytest.raises(BadInput, match=str(tmp_path)):
        load_model(tmp_path)


def test_a_file_that_is_no_gguf(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"no weights here" * 10)
    with pytest.raises(BadInput, match=r"m\.gguf"):
        load_model(tmp_path / "m.gguf")


def test_a_finished_capture_is_not_made_again(tmp_path, model, text, monkeypatch):
    out, notices = tmp_path / "c.safetensors", []
    rows = capture(model, [text], out, window=WINDOW)
    stamp = out.stat().st_mtime_ns
    assert capture(model, [text], out, window=WINDOW, notice=notices.append) == rows
    assert out.stat().st_mtime_ns == stamp
    assert notices == [f"{out} holds this capture already"]


def test_what_became_of_earlier_work_is_notified(tmp_path, model, text):
    out, notices = tmp_path / "c.safetensors", []
    for window in (WINDOW, WINDOW, 2 * WINDOW):
        with pytest.raises(StopCapture):
            capture(
                model, [text], out, window=window, batch=1, progress=stop_after(2 * WINDOW + 1), notice=notices.append
            )
    assert notices == [
        f"continuing after {3 * WINDOW} contexts of an earlier run",
        "an earlier run had other arguments: starting again",
    ]


def test_a_state_too_large_for_float16(tmp_path, model_folder, text, monkeypatch):
    model = load_model(model_folder)
    monkeypatch.setattr(type(model), "hidden_states", lambda self, windows: torch.full((*windows.shape, 16), 1e5))
    with pytest.raises(BadInput, match="1e\\+05 does not fit float16: give --dtype float32"):
        capture(model, [text], tmp_path / "c.safetensors", window=WINDOW, dtype="float16")
    assert not (tmp_path / "c.safetensors").exists()


def test_a_state_that_is_not_a_number(tmp_path, model_folder, text, monkeypatch):
    model = load_model(model_folder)
    monkeypatch.setattr(type(model), "hidden_states", lambda self, windows: torch.full((*windows.shape, 16), torch.nan))
    with pytest.raises(BadInput, match="NaN or infinite"):
        capture(model, [text], tmp_path / "c.safetensors", window=WINDOW)


def test_a_folder_that_cannot_be_written(tmp_path, model, text):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ShortlistError, match="cannot be written"):
        capture(model, [text], tmp_path / "file" / "c.safetensors", window=WINDOW)
    with pytest.raises(ShortlistError, match="cannot be written"):
        write_head(tmp_path / "file" / "h.safetensors", model.dense, "tiny")


def test_a_full_disk_keeps_what_was_done(tmp_path, model, text, monkeypatch):
    out = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr("shortlist_exporter.capture.spool.os.fsync", full_after(3))
        with pytest.raises(ShortlistError, match="No space left"):
            capture(model, [text], out, window=WINDOW, batch=1)
    assert not out.exists()
    row_counts = []
    capture(model, [text], out, window=WINDOW, batch=1, progress=lambda stage, done, total: row_counts.append(done))
    assert row_counts[0] == 3 * WINDOW


def full_after(times):
    left = iter(range(times))

    def fsync(_):
        if next(left, None) is None:
            raise OSError(28, "No space left on device")

    return fsync
