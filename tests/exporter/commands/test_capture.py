import json

import pytest
from shortlist.cli.dispatch import main
from shortlist_exporter.inputs.sources import load_contexts, load_dense

from tests.exporter.capture.tiny import WORDS, list_hidden_files

pytestmark = pytest.mark.slow

WINDOW = 8


def test_the_command_writes_all_three(tmp_path, model_folder, text, capfd):
    outs = [tmp_path / "out" / name for name in ("c.safetensors", "h.safetensors", "l.json")]
    flags = [f for pair in zip(("--out", "--weights-out", "--labels-out"), outs, strict=True) for f in pair]
    command = ["capture", "--model", model_folder, "--text", text, "--window", WINDOW, "--threads", 1, *flags]
    assert main([str(part) for part in command]) == 0
    assert load_contexts(outs[0]).contexts.shape[1] == load_dense(outs[1]).dim == 16
    labels = json.loads(outs[2].read_text())
    assert labels[1:WORDS] == [f"w{i}" for i in range(1, WORDS)]
    assert labels[WORDS:] == [""] * 8
    assert "contexts" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--model", "absent"], "no model at absent"),
        (["--weights-out", "w.npy"], "--weights-out w.npy must end in .safetensors"),
        (["--out", "c.npy"], "--out c.npy must end in .safetensors"),
    ],
)
def test_wrong_flags_are_one_line_of_the_command(tmp_path, model_folder, text, capfd, flags, sentence):
    base = ["capture", "--model", str(model_folder), "--text", str(text), "--out", str(tmp_path / "c.safetensors")]
    assert main(base + flags) == 1
    assert sentence in capfd.readouterr().err
    assert list_hidden_files(tmp_path) == []


@pytest.mark.parametrize("flag", ["--window", "--tokens", "--batch", "--threads"])
def test_a_number_that_is_none_is_a_usage_error(capfd, flag):
    with pytest.raises(SystemExit, match="2"):
        main(["capture", "--model", "m", "--text", "t", "--out", "c.safetensors", flag, "0"])
    assert f"{flag}: '0' is not a whole number from 1" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--out", "t.safetensors"], "--out t.safetensors is named twice"),
        (["--weights-out", "./c.safetensors"], "--weights-out c.safetensors is named twice"),
        (["--labels-out", "t.safetensors"], "--labels-out t.safetensors is named twice"),
        (["--labels-out", "link"], "--labels-out link is named twice"),
        (["--weights-out", "m/model.safetensors"], "lies in the model's folder"),
    ],
)
def test_no_output_replaces_an_input_or_another_output(tmp_path, monkeypatch, capfd, flags, sentence):
    """Refused before the model, which is none here, is read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    (tmp_path / "t.safetensors").write_text("a text by that name")
    (tmp_path / "link").symlink_to("t.safetensors")
    assert main(["capture", "--model", "m", "--text", "t.safetensors", "--out", "c.safetensors", *flags]) == 1
    assert sentence in capfd.readouterr().err
    assert (tmp_path / "t.safetensors").read_text() == "a text by that name"
