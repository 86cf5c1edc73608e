import pytest
import torch
from shortlist.errors import BadInput, ShortlistError
from shortlist_exporter.capture.run import capture
from shortlist_exporter.capture.texts import Text
from shortlist_exporter.inputs.sources import load_contexts

from .tiny import StopCapture, stop_after

WINDOW = 8


def test_a_finished_capture_is_not_made_again(tmp_path, model, text, monkeypatch):
    out, notices = tmp_path / "c.safetensors", []
    rows = capture(model, [Text(text)], out, window=WINDOW)
    stamp = out.stat().st_mtime_ns
    assert capture(model, [Text(text)], out, window=WINDOW, notice=notices.append) == rows
    assert out.stat().st_mtime_ns == stamp
    assert notices == [f"{out} holds this capture already"]


def test_what_became_of_earlier_work_is_notified(tmp_path, model, text):
    out, notices = tmp_path / "c.safetensors", []
    for window in (WINDOW, WINDOW, 2 * WINDOW):
        with pytest.raises(StopCapture):
            capture(
                model,
                [Text(text)],
                out,
                window=window,
                batch=1,
                progress=stop_after(2 * WINDOW + 1),
                notice=notices.append,
            )
    assert notices == [
        f"continuing after {3 * WINDOW} contexts of an earlier run",
        "an earlier run had other arguments: starting again",
    ]


def test_a_text_of_another_name_is_no_continuation(tmp_path, model, text):
    out, other, notices = tmp_path / "c.safetensors", tmp_path / "t.txt", []
    long = text.rename(tmp_path / f"{'long' * 8}.txt")  # its header takes more bytes
    with pytest.raises(StopCapture):
        capture(model, [Text(long)], out, window=WINDOW, batch=1, progress=stop_after(2 * WINDOW + 1))
    long.rename(other)
    capture(model, [Text(other)], out, window=WINDOW, notice=notices.append)
    capture(model, [Text(other)], tmp_path / "whole.safetensors", window=WINDOW)
    assert notices == ["an earlier run had other arguments: starting again"]
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_a_finished_capture_of_a_text_of_another_name_is_made_again(tmp_path, model, text):
    out, other = tmp_path / "c.safetensors", tmp_path / "other.txt"
    capture(model, [Text(text)], out, window=WINDOW)
    text.rename(other)
    capture(model, [Text(other)], out, window=WINDOW)
    assert list(load_contexts(out).kinds) == ["other"]


def test_a_state_too_large_for_float16(tmp_path, model, text, monkeypatch):
    monkeypatch.setattr(type(model), "hidden_states", lambda self, windows: torch.full((*windows.shape, 16), 1e5))
    with pytest.raises(BadInput, match="1e\\+05 does not fit float16: give --dtype float32"):
        capture(model, [Text(text)], tmp_path / "c.safetensors", window=WINDOW, dtype="float16")
    assert not (tmp_path / "c.safetensors").exists()


def test_a_state_that_is_not_a_number(tmp_path, model, text, monkeypatch):
    monkeypatch.setattr(type(model), "hidden_states", lambda self, windows: torch.full((*windows.shape, 16), torch.nan))
    with pytest.raises(BadInput, match="NaN or infinite"):
        capture(model, [Text(text)], tmp_path / "c.safetensors", window=WINDOW)


def test_a_folder_that_cannot_be_written(tmp_path, model, text):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ShortlistError, match="cannot be written"):
        capture(model, [Text(text)], tmp_path / "file" / "c.safetensors", window=WINDOW)


def test_a_full_disk_keeps_what_was_done(tmp_path, model, text, monkeypatch):
    out = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr("shortlist_exporter.capture.spool.os.fsync", full_after(3))
        with pytest.raises(ShortlistError, match="No space left"):
            capture(model, [Text(text)], out, window=WINDOW, batch=1)
    assert not out.exists()
    row_counts = []
    capture(
        model, [Text(text)], out, window=WINDOW, batch=1, progress=lambda stage, done, total: row_counts.append(done)
    )
    assert row_counts[0] == 3 * WINDOW


def full_after(times):
    left = iter(range(times))

    def fsync(_):
        if next(left, None) is None:
            raise OSError(28, "No space left on device")

    return fsync
