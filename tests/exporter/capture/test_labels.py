"""Printable names from tokenizers, and `shortlist export` of other files than safetensors."""

import json

import gguf
import numpy as np
import pytest
import torch
from shortlist.cli.dispatch import main
from shortlist.errors import BadInput, NotFound
from shortlist_exporter.capture.labels import read_labels
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.inputs.sources import Dense
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.support.layers import make_contexts, make_dense

from .tiny import WORDS, save_model

BYTES = ["<|end|>", "Ġthe", "Ċ", "Ã", "Ã©", "the", "ĠâĤ¬"]
NAMES = ["<|end|>", " the", "\n", "Ã", "é", "the", " €"]


def layer(classes, padded=()):
    return Dense(np.ones((classes, 2), np.float32), padded=np.array(padded, np.int64))


def save_bytes(path):
    """A byte-level tokenizer.json, or a folder with one."""
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(BYTES)}, unk_token=BYTES[0]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    if path.suffix == ".json":
        tokenizer.save(str(path))
    else:
        PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(path)
    return path


def save_gguf(path, names, model, types=None):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(names)
    writer.add_token_types(types or [1] * len(names))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("name", ["tokenizer.json", "folder", "x.gguf"])
def test_byte_level_tokens_as_they_print(tmp_path, name):
    path = tmp_path / name
    save_gguf(path, BYTES, "gpt2") if path.suffix == ".gguf" else save_bytes(path)
    assert read_labels(path, layer(7)) == NAMES
    assert read_labels(path, layer(9, padded=[2])) == [*NAMES[:2], "", *NAMES[3:], "", ""]


def test_sentence_pieces_of_a_gguf(tmp_path):
    space = "\N{LOWER ONE EIGHTH BLOCK}"
    names = ["<s>", f"{space}the", "the", "<0x0A>", "<0xC3>", f"{space}{space}", "[PAD6]"]
    path = save_gguf(tmp_path / "x.gguf", names, "llama", [3, 1, 1, 6, 6, 1, 5])
    assert read_labels(path, layer(8)) == ["<s>", " the", "the", "\n", "<0xC3>", "  ", "", ""]


def test_a_folder_gives_what_capture_gives(tmp_path):
    save_model(tmp_path, vocab_size=WORDS + 8)
    model = load_model(tmp_path)
    assert read_labels(tmp_path, layer(WORDS + 8)) == model.make_labels()
    assert model.make_labels()[-9:] == ["w39", *[""] * 8]


@pytest.mark.parametrize("name", ["tokenizer.json", "folder", "x.gguf"])
def test_more_tokens_than_rows(tmp_path, name):
    path = tmp_path / name
    save_gguf(path, BYTES, "gpt2") if path.suffix == ".gguf" else save_bytes(path)
    with pytest.raises(BadInput, match=rf"{name}.* the output layer 6 rows"):
        read_labels(path, layer(6))


def test_what_is_no_tokenizer(tmp_path):
    with pytest.raises(NotFound, match=r"no tokenizer at .*absent"):
        read_labels(tmp_path / "absent", layer(7))
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(BadInput, match=r"t\.json holds no tokenizer"):
        read_labels(tmp_path / "t.json", layer(7))
    with pytest.raises(BadInput, match="holds no tokenizer"):
        read_labels(tmp_path, layer(7))
    (tmp_path / "x.gguf").write_text("no")
    with pytest.raises(BadInput, match=r"x\.gguf is not a whole GGUF"):
        read_labels(tmp_path / "x.gguf", layer(7))
    writer = gguf.GGUFWriter(tmp_path / "y.gguf", "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(BadInput, match=r"y\.gguf holds no vocabulary"):
        read_labels(tmp_path / "y.gguf", layer(7))


def test_export_of_a_state_dict_with_labels(tmp_path, capsys):
    dense = make_dense(classes=7, bias=np.arange(7, dtype=np.float32))
    torch.save({"head.w": torch.tensor(dense.weight), "head.b": torch.tensor(dense.bias)}, tmp_path / "x.pt")
    np.save(tmp_path / "c.npy", make_contexts().contexts)
    save_bytes(tmp_path / "tokenizer.json")
    out = tmp_path / "repo" / "lm" / "1"
    code = main(
        [
            *("export", "--weights", str(tmp_path / "x.pt"), "--tensor", "head.w", "--bias-tensor", "head.b"),
            *("--contexts", str(tmp_path / "c.npy"), "--labels-from", str(tmp_path / "tokenizer.json")),
            *("--method", "full", "--threads", "1", "--out", str(out)),
        ]
    )
    assert code == 0, capsys.readouterr().err
    assert json.loads((out / "labels.json").read_text("utf-8")) == NAMES
    assert json.loads((out / "manifest.json").read_text("utf-8"))["classes"] == 7


def test_labels_are_given_once(capsys):
    with pytest.raises(SystemExit):
        main(["export", "--weights", "w", "--contexts", "c", "--out", "o", "--labels", "a", "--labels-from", "b"])
    assert "not allowed with argument" in capsys.readouterr().err
