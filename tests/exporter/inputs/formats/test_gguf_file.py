"""The layer in GGUF files."""

import gguf
import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist_exporter.inputs.sources import load_dense

from .layer import BIAS, WEIGHT, check, save_gguf


def test_gguf(tmp_path):
    path = save_gguf(
        tmp_path / "x.gguf", {"token_embd.weight": WEIGHT[::-1].copy(), "output.weight": WEIGHT, "output.bias": BIAS}
    )
    check(load_dense(path), dtype="F32")
    check(load_dense(path, tensor="token_embd.weight"), bias=False, dtype="F32", weight=WEIGHT[::-1])
    check(load_dense(path, tensor="token_embd.weight", bias_tensor="output.bias"), dtype="F32", weight=WEIGHT[::-1])
    with pytest.raises(BadInput, match=r"no tensor 'x': choose by --tensor among token_embd\.weight \[12, 32\]"):
        load_dense(path, tensor="x")


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_gguf_types(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("shortlist_exporter.inputs.formats.gguf_file.DEQUANTIZE_CHUNK_ROWS", 5)
    kind_ = gguf.GGMLQuantizationType[kind]
    dense = load_dense(save_gguf(tmp_path / "x.gguf", {"token_embd.weight": (WEIGHT, kind_)}))
    values = gguf.quants.dequantize(gguf.quants.quantize(WEIGHT, kind_), kind_)
    check(dense, bias=False, dtype=kind, weight=values)
    step = {"F16": 2e-3, "BF16": 2e-2, "Q8_0": 0.02, "Q4_0": 0.3}[kind]
    np.testing.assert_allclose(dense.weight, WEIGHT, atol=step)


def test_gguf_type_that_cannot_be_read(tmp_path, monkeypatch):
    path = save_gguf(tmp_path / "x.gguf", {"output.weight": (WEIGHT, gguf.GGMLQuantizationType.Q8_0)})
    monkeypatch.setattr("gguf.quants._type_traits", {})
    with pytest.raises(BadInput, match=r"output\.weight in .*x\.gguf is Q8_0, which cannot be read"):
        load_dense(path)


@pytest.mark.parametrize(
    ("architecture", "settings", "expected"),
    [
        ("command-r", {"logit_scale": 0.25}, (0.25, None)),
        ("granite", {"logit_scale": 8.0}, (0.125, None)),
        ("llama", {"logit_scale": 0.0}, (1.0, None)),
        ("gemma2", {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}, (1.0, 30.0)),
    ],
)
def test_gguf_scale_and_cap(tmp_path, architecture, settings, expected):
    dense = load_dense(save_gguf(tmp_path / "x.gguf", {"token_embd.weight": WEIGHT}, architecture, **settings))
    assert (dense.logit_scale, dense.soft_cap) == expected


def test_gguf_scale_of_unknown_meaning(tmp_path):
    path = save_gguf(tmp_path / "x.gguf", {"output.weight": WEIGHT}, "novel", logit_scale=2.0)
    with pytest.raises(BadInput, match=r"architecture novel.* logit scale"):
        load_dense(path)


def test_gguf_padding(tmp_path):
    names = ["<s>", "[PAD1]", "a", "[PAD3]", *"bcdef"]
    path = save_gguf(tmp_path / "x.gguf", {"output.weight": WEIGHT}, tokens=names, types=[3, 1, 1, 5, 5, 1, 1, 1, 1])
    np.testing.assert_array_equal(load_dense(path).padded, [3, 9, 10, 11])
