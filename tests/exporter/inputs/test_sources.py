import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from shortlist.errors import BadInput, NotFound
from shortlist_exporter.inputs.sources import Contexts, Dense, check_pair, load_contexts, load_dense

from tests.support.pickles import Trap

V, D = 12, 4


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.randn(V, D, generator=torch.Generator().manual_seed(0))


def save(path, metadata=None, **tensors):
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, path, metadata)
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_and_bias_of_any_float_become_float32(tmp_path, weight, dtype):
    path = save(tmp_path / "head.safetensors", weight=weight.to(dtype), bias=weight[:, 0].to(dtype))
    dense = load_dense(path)
    assert dense.weight.dtype == dense.bias.dtype == np.float32
    assert dense.weight.flags.c_contiguous
    assert dense.dtype == str(dtype).removeprefix("torch.")
    np.testing.assert_array_equal(dense.weight, weight.to(dtype).float().numpy())
    np.testing.assert_array_equal(dense.bias, weight[:, 0].to(dtype).float().numpy())
    assert (dense.classes, dense.dim) == (V, D)
    assert (dense.logit_scale, dense.soft_cap, dense.padded.size) == (1.0, None, 0)


def test_a_file_that_may_not_be_read_is_not_called_absent(tmp_path, weight, monkeypatch):
    """As safetensors does."""

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    path = save(tmp_path / "head.safetensors", weight=weight)
    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(PermissionError, match=r"head\.safetensors"):
        load_dense(path)


def test_a_convolution_of_1_by_1_is_a_layer_and_pooled_features_are_contexts(tmp_path, weight):
    dense = load_dense(save(tmp_path / "head.safetensors", weight=weight[:, :, None, None]))
    np.testing.assert_array_equal(dense.weight, weight.numpy())
    contexts = load_contexts(save(tmp_path / "contexts.safetensors", contexts=weight[:, :, None, None]))
    np.testing.assert_array_equal(contexts.contexts, weight.numpy())
    with pytest.raises(BadInput, match=r"shape \[12, 4, 1, 2\]: give 2 axes"):
        load_dense(save(tmp_path / "wide.safetensors", weight=weight[:, :, None, None].repeat(1, 1, 1, 2)))


def test_scale_cap_and_padding_come_from_the_file(tmp_path, weight):
    metadata = {"logit_scale": "0.0625", "soft_cap": "30.0", "model": "any"}
    dense = load_dense(save(tmp_path / "h.safetensors", metadata, weight=weight, padded=torch.tensor([11, 3, 11])))
    assert (dense.logit_scale, dense.soft_cap) == (0.0625, 30.0)
    np.testing.assert_array_equal(dense.padded, [3, 11])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_npy_with_its_bias_beside_it(tmp_path, weight, order, dtype):
    np.save(tmp_path / "w.npy", np.asarray(weight.numpy(), dtype, order=order))
    np.save(tmp_path / "b.npy", weight.numpy()[:, 1])
    dense = load_dense(tmp_path / "w.npy", tmp_path / "b.npy")
    np.testing.assert_array_equal(dense.weight, weight.numpy().astype(dtype))
    np.testing.assert_array_equal(dense.bias, weight.numpy()[:, 1])
    assert dense.weight.flags.c_contiguous


def test_the_hash_is_the_file_s(tmp_path, weight):
    first, same = (save(tmp_path / name, weight=weight) for name in ("a.safetensors", "b.safetensors"))
    other = save(tmp_path / "c.safetensors", weight=weight + 1)
    assert load_dense(first).sha256 == load_dense(same).sha256 != load_dense(other).sha256
    assert len(load_dense(first).sha256) == 64


def test_contexts_with_targets_and_documents(tmp_path, weight):
    path = save(
        tmp_path / "c.safetensors",
        contexts=weight.half(),
        targets=torch.arange(V),
        documents=torch.arange(V, dtype=torch.int32) // 5,
    )
    contexts = load_contexts(path)
    np.testing.assert_array_equal(contexts.contexts, weight.half().float().numpy())
    np.testing.assert_array_equal(contexts.targets, np.arange(V))
    assert contexts.documents.dtype == np.int32
    np.testing.assert_array_equal(contexts.documents, np.arange(V) // 5)


def test_contexts_from_npy_have_neither(tmp_path, weight):
    np.save(tmp_path / "c.npy", weight.numpy())
    contexts = load_contexts(tmp_path / "c.npy")
    assert contexts.targets is None
    assert contexts.documents is None
    np.testing.assert_array_equal(contexts.contexts, weight.numpy())


@pytest.mark.parametrize("load", [load_dense, load_contexts])
def test_a_missing_file(tmp_path, load):
    with pytest.raises(BadInput, match="is a folder: give a file"):
        load_contexts(tmp_path)
    with pytest.raises(NotFound, match=r"no file .*absent\.safetensors"):
        load(tmp_path / "absent.safetensors")


def test_npy_of_the_other_byte_order(tmp_path, weight):
    np.save(tmp_path / "w.npy", weight.numpy().astype(">f4"))
    np.testing.assert_array_equal(load_dense(tmp_path / "w.npy").weight, weight.numpy())


@pytest.mark.parametrize("name", ["head.safetensors", "head.npy"])
@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_a_truncated_file(tmp_path, weight, name, keep):
    path = tmp_path / name
    if path.suffix == ".npy":
        np.save(path, weight.numpy())
    else:
        save(path, weight=weight)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadInput, match="head"):
        load_dense(path)


@pytest.mark.parametrize("name", ["text.safetensors", "text.npy"])
def test_a_file_of_another_kind(tmp_path, name):
    (tmp_path / name).write_text("no tensors here, " * 100)
    with pytest.raises(BadInput, match="safetensors or"):
        load_dense(tmp_path / name)


def test_a_file_of_another_ending_is_to_be_saved_as_one_of_ours(tmp_path, weight):
    torch.save({"contexts": weight}, tmp_path / "contexts.pt")
    with pytest.raises(BadInput, match=r"contexts\.pt is not .*: save it as one of them, named \.safetensors or \.npy"):
        load_contexts(tmp_path / "contexts.pt")


def test_a_pickle_is_never_run(tmp_path):
    marker = str(tmp_path / "ran")
    np.save(tmp_path / "array.npy", np.array([Trap(marker)], object), allow_pickle=True)
    (tmp_path / "plain.npy").write_bytes(pickle.dumps(Trap(marker)))
    for name in ("array.npy", "plain.npy"):
        with pytest.raises(BadInput):
            load_dense(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_the_names_it_has_are_told(tmp_path, weight):
    path = save(tmp_path / "h.safetensors", matrix=weight, offset=weight[0])
    with pytest.raises(BadInput, match=r"weight.*matrix, offset"):
        load_dense(path)
    with pytest.raises(BadInput, match=r"contexts.*matrix, offset"):
        load_contexts(path)


@pytest.mark.parametrize("shape", [(V,), (V, D, 1), (0, D), (V, 0)])
def test_a_wrong_or_empty_shape(tmp_path, shape):
    for load, name in ((load_dense, "weight"), (load_contexts, "contexts")):
        with pytest.raises(BadInput, match=f"{name}.* has shape|is empty"):
            load(save(tmp_path / f"{name}.safetensors", **{name: torch.zeros(shape)}))


def test_integers_are_no_weights(tmp_path):
    with pytest.raises(BadInput, match=r"int64.*float32, float16 or bfloat16"):
        load_dense(save(tmp_path / "h.safetensors", weight=torch.ones(V, D, dtype=torch.int64)))


def test_doubles_are_to_be_made_single(tmp_path):
    np.save(tmp_path / "w.npy", np.ones((V, D)))
    with pytest.raises(BadInput, match=r'is float64: give float32.*, as by numpy\'s \.astype\("float32"\)$'):
        load_dense(tmp_path / "w.npy")
    np.save(tmp_path / "w.npy", np.ones((V, D), np.longdouble))
    with pytest.raises(BadInput, match=r"w\.npy is float128, which torch does not have: save it as float32"):
        load_dense(tmp_path / "w.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_row_that_is_not_finite_is_told(tmp_path, weight, value):
    weight[7, 2] = weight[9, 0] = value
    with pytest.raises(BadInput, match=r"weight.*h\.safetensors.* 2 .*first in row 7"):
        load_dense(save(tmp_path / "h.safetensors", weight=weight))
    with pytest.raises(BadInput, match=r"contexts.*c\.safetensors.* 2 .*first in row 7"):
        load_contexts(save(tmp_path / "c.safetensors", contexts=weight))
    with pytest.raises(BadInput, match=r"bias.*first in row 7"):
        load_dense(save(tmp_path / "b.safetensors", weight=torch.ones(V, D), bias=weight[:, 2]))


def test_a_bias_of_another_length(tmp_path, weight):
    with pytest.raises(BadInput, match=f"bias .*{V - 1} entries for {V} rows of weight: give one for each"):
        load_dense(save(tmp_path / "h.safetensors", weight=weight, bias=weight[1:, 0]))


def test_a_weight_beside_whose_bias_it_is_seen_to_be_transposed(tmp_path, weight):
    turned = save(tmp_path / "h.safetensors", weight=weight.T.contiguous(), bias=weight[:, 0].contiguous())
    with pytest.raises(
        BadInput, match=rf"bias .*{V} entries for {D} rows of weight: give the transposed weight, \[V, d\]"
    ):
        load_dense(turned)


@pytest.mark.parametrize("padded", [[-1], [V]])
def test_padding_that_is_no_row(tmp_path, weight, padded):
    with pytest.raises(BadInput, match=f"padded.*0 to {V - 1}"):
        load_dense(save(tmp_path / "h.safetensors", weight=weight, padded=torch.tensor(padded)))


@pytest.mark.parametrize("name", ["logit_scale", "soft_cap"])
@pytest.mark.parametrize("value", ["much", "nan", "inf", "0", "-1"])
def test_metadata_that_is_no_positive_number(tmp_path, weight, name, value):
    with pytest.raises(BadInput, match=f"{name}.*{value}"):
        load_dense(save(tmp_path / "h.safetensors", {name: value}, weight=weight))


@pytest.mark.parametrize("name", ["targets", "documents"])
def test_columns_of_another_length_or_kind(tmp_path, weight, name):
    with pytest.raises(BadInput, match=f"{name}.*{V - 1}.*{V} contexts"):
        load_contexts(
            save(tmp_path / "a.safetensors", contexts=weight, **{name: torch.zeros(V - 1, dtype=torch.int64)})
        )
    with pytest.raises(BadInput, match=f"{name}.*integers"):
        load_contexts(save(tmp_path / "b.safetensors", contexts=weight, **{name: torch.zeros(V)}))


def test_documents_whose_numbers_would_fall_together_are_refused(tmp_path, weight):
    path = save(tmp_path / "c.safetensors", contexts=weight, documents=torch.arange(V) << 32)
    with pytest.raises(BadInput, match=r"documents in .* beyond 32 bits: number the documents from 0"):
        load_contexts(path)


@pytest.mark.parametrize("name", ["targets", "documents"])
def test_every_context_has_a_target_and_a_document_if_any_has(name):
    contexts = Contexts(np.ones((3, D), np.float32), **{name: np.zeros(2, np.int64)})
    with pytest.raises(BadInput, match=f"there are 2 {name} for 3 contexts: give one for each"):
        check_pair(Dense(np.ones((V, D), np.float32)), contexts)


def test_contexts_whose_squares_overflow_are_refused():
    contexts = Contexts(np.full((3, D), -1e20, np.float32))
    with pytest.raises(BadInput, match=r"contexts hold numbers up to 1e\+20, over 1e\+15: divide all of them"):
        check_pair(Dense(np.ones((V, D), np.float32)), contexts)


def test_a_weight_of_columns_is_told_by_its_contexts():
    dense, contexts = Dense(np.ones((D, V), np.float32)), Contexts(np.ones((9, D), np.float32))
    with pytest.raises(BadInput, match=rf"d = {D} but .* d = {V}: give the transposed weight, \[V, d\]"):
        check_pair(dense, contexts)


def test_a_pair_must_share_d():
    dense, contexts = Dense(np.ones((V, D), np.float32)), Contexts(np.ones((3, D + 1), np.float32))
    with pytest.raises(BadInput, match=f"d = {D + 1}.*d = {D}"):
        check_pair(dense, contexts)


@pytest.mark.parametrize("target", [-100, -1, V])
def test_targets_must_be_classes(target):
    dense = Dense(np.ones((V, D), np.float32))
    with pytest.raises(BadInput, match=r"targets go from .*: leave out contexts without a class"):
        check_pair(dense, Contexts(np.ones((2, D), np.float32), np.array([0, target])))
    check_pair(dense, Contexts(np.ones((2, D), np.float32), np.array([0, V - 1])))


@pytest.mark.parametrize("name", ["logit_scale", "soft_cap"])
@pytest.mark.parametrize("factor", [0, 0.0, -1.0, np.nan, np.inf, 1e39, 1e-60, "2", np.float32(-3)])
def test_a_scale_and_a_soft_cap_made_in_python_are_over_0(name, factor):
    with pytest.raises(BadInput, match=f"{name} is .* but must be a number over 0 that float32 can hold"):
        Dense(np.ones((V, D), np.float32), **{name: factor})


def test_scales_that_are_numbers_over_0():
    for factor in (1, 0.5, 3e38, 1e-38, np.float32(2), np.int64(3)):
        assert Dense(np.ones((V, D), np.float32), None, factor, factor).logit_scale == factor
