import json
from pathlib import Path

import numpy as np
import pytest
from shortlist.cli.dispatch import main
from shortlist_exporter.capture.texts import Text
from shortlist_exporter.commands.capture import parse_text
from shortlist_exporter.inputs.sources import load_contexts, load_dense

from tests.exporter.capture.tiny import WORDS, list_hidden_files, write_text

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


def test_without_texts_the_model_makes_them_up(tmp_path, model_folder, capfd):
    out = tmp_path / "c.safetensors"
    command = ["capture", "--model", model_folder, "--window", WINDOW, "--tokens", 20, "--seed", 3, "--out", out]
    assert main([str(part) for part in command]) == 0
    assert len(load_contexts(out).contexts) == 24
    assert "no --text: the model makes up the texts itself" in capfd.readouterr().err


def test_texts_may_be_given_many_times_with_weights_and_as_folders(tmp_path, model_folder, capfd):
    (tmp_path / "texts").mkdir()
    for name in ("texts/a.txt", "texts/b.txt", "c.txt"):
        write_text(tmp_path / name, documents=1, length=200)
    flags = ["--text", tmp_path / "texts", "--text", f"{tmp_path / 'c.txt'}=2", "--tokens", 16 * WINDOW]
    command = ["capture", "--model", model_folder, "--window", WINDOW, "--out", tmp_path / "c.safetensors", *flags]
    assert main([str(part) for part in command]) == 0
    documents = load_contexts(tmp_path / "c.safetensors").documents
    assert np.bincount(documents).tolist() == [4 * WINDOW, 4 * WINDOW, 8 * WINDOW]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a.txt", Text(Path("a.txt"))),
        ("a.txt=2", Text(Path("a.txt"), 2.0)),
        ("a=b.txt=.5", Text(Path("a=b.txt"), 0.5)),
        ("there=2", Text(Path("there=2"))),
    ],
)
def test_a_text_and_its_weight(tmp_path, monkeypatch, value, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there=2").write_text("a text by that name")
    assert parse_text(value) == text


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "much", ""])
def test_a_weight_that_is_no_number_over_0_is_a_usage_error(capfd, weight):
    with pytest.raises(SystemExit, match="2"):
        main(["capture", "--model", "m", "--text", f"t.txt={weight}", "--out", "c.safetensors"])
    assert f"the weight {weight!r} is not a number over 0" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--seed", "1"], "--seed is for texts that the model makes up"),
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


def test_a_seed_under_0_is_a_usage_error(capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["capture", "--model", "m", "--out", "c.safetensors", "--seed", "-1"])
    assert "--seed: '-1' is not a whole number from 0" in capfd.readouterr().err


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
