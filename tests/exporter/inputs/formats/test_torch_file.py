"""The layer in files of torch and safetensors."""

import pickle

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from shortlist.errors import BadInput
from shortlist_exporter.export.run import load_state
from shortlist_exporter.inputs.formats.torch_file import strip_wrappers
from shortlist_exporter.inputs.sources import load_dense

from tests.support.pickles import Trap

from .layer import BIAS, WEIGHT, check, save_torch, tensors


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin"])
@pytest.mark.parametrize("new", [True, False])
def test_a_state_dict(tmp_path, suffix, new):
    content = tensors(weight=WEIGHT, bias=BIAS, other=WEIGHT)
    check(load_dense(save_torch(tmp_path / f"x{suffix}", content, _use_new_zipfile_serialization=new)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_state_dict_of_half_precision(tmp_path, dtype):
    weight = torch.tensor(WEIGHT).to(dtype)
    dense = load_dense(save_torch(tmp_path / "x.pt", {"weight": weight}))
    check(dense, bias=False, dtype=str(dtype).removeprefix("torch."), weight=weight.float().numpy())


@pytest.mark.parametrize("start", [b"300 16\nthe \x00", b"\x06\x00\x00\x00\x10\x00TransformerSpec", b""])
def test_files_of_others_that_end_as_torch_s_are_called_so(tmp_path, start):
    (tmp_path / "x.bin").write_bytes(start + bytes(64))
    with pytest.raises(BadInput, match=r"x\.bin was not saved by torch: of word2vec, fastText or CTranslate2"):
        load_dense(tmp_path / "x.bin")


@pytest.mark.parametrize("tensor", [None, "module.fc.weight"])
def test_parameters_that_other_processes_hold(tmp_path, tensor):
    path = save_torch(tmp_path / "x.pt", {"module": {"fc.bias": torch.ones(3), "fc.weight": torch.empty(0)}})
    with pytest.raises(BadInput, match=r"module\.fc\.weight in .* has shape \[0\].*zero_to_fp32\.py"):
        load_dense(path, tensor=tensor)


def test_the_only_matrix_with_the_bias_of_its_name(tmp_path):
    content = tensors(norm__weight=BIAS[:3], fc__weight=WEIGHT, fc__bias=BIAS)
    check(load_dense(save_torch(tmp_path / "x.pt", content)))
    check(load_dense(save_torch(tmp_path / "y.pt", {"state_dict": content, "epoch": 3})))
    check(load_dense(save_torch(tmp_path / "z.pt", torch.nn.Parameter(torch.tensor(WEIGHT)))), bias=False)


def test_tied_matrices_are_one_candidate(tmp_path):
    weight = torch.tensor(WEIGHT)
    check(load_dense(save_torch(tmp_path / "x.pt", {"embedding.weight": weight, "fc.weight": weight})), bias=False)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_tensors_by_name(tmp_path, suffix):
    content = tensors(a=WEIGHT, b__weight=WEIGHT[::-1].copy(), b__bias=BIAS[::-1].copy(), offset=BIAS)
    path = tmp_path / f"x{suffix}"
    save_torch(path, content) if suffix == ".pt" else save_file(content, path)
    check(load_dense(path, tensor="a", bias_tensor="offset"))
    check(load_dense(path, tensor="a"), bias=False)
    np.testing.assert_array_equal(load_dense(path, tensor="b.weight").bias, BIAS[::-1])
    with pytest.raises(BadInput, match=r"x\..* has no tensor 'c', only a, b\.bias, b\.weight, offset"):
        load_dense(path, tensor="c")
    with pytest.raises(BadInput, match="has no tensor 'd'"):
        load_dense(path, tensor="a", bias_tensor="d")


def test_a_bias_of_a_file_of_its_own(tmp_path):
    save_file(tensors(offset=BIAS), tmp_path / "b.safetensors")
    save_torch(tmp_path / "x.pt", tensors(weight=WEIGHT))
    check(load_dense(tmp_path / "x.pt", tmp_path / "b.safetensors", bias_tensor="offset"))
    with pytest.raises(BadInput, match=r"b\.safetensors has no tensor 'bias', only offset"):
        load_dense(tmp_path / "x.pt", tmp_path / "b.safetensors")


def test_several_matrices_are_listed_with_their_shapes(tmp_path):
    path = save_torch(tmp_path / "x.pt", tensors(a=WEIGHT, b=WEIGHT[:4], c=BIAS))
    with pytest.raises(BadInput, match=r"x\.pt has 2 matrices: choose by --tensor among a \[12, 32\], b \[4, 32\]"):
        load_dense(path)
    with pytest.raises(BadInput, match=r"x\.pt has no matrix, only c"):
        load_dense(save_torch(tmp_path / "x.pt", tensors(c=BIAS)))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_of_many_tensors_those_with_the_most_rows_are_told(tmp_path, suffix):
    layers = {f"blocks.{number}.fc.{name}": WEIGHT[:4] for number in range(30) for name in ("weight", "bias")}
    content = tensors(**layers | {"head.weight": WEIGHT})
    path = tmp_path / f"x{suffix}"
    save_torch(path, content) if suffix == ".pt" else save_file(content, path)
    with pytest.raises(BadInput, match=r"(among|only) head\.weight.* more"):
        load_dense(path)
    with pytest.raises(BadInput, match=r"no tensor 'c', only head\.weight, blocks\.0.* 49 more"):
        load_dense(path, tensor="c")


def test_a_pickle_that_would_run_code(tmp_path):
    marker = str(tmp_path / "ran")
    save_torch(tmp_path / "a.pt", {"weight": torch.tensor(WEIGHT), "trap": Trap(marker)})
    save_torch(tmp_path / "b.pt", Trap(marker), _use_new_zipfile_serialization=False)
    (tmp_path / "c.pt").write_bytes(pickle.dumps(Trap(marker)))
    for name in "abc":
        with pytest.raises(BadInput, match=rf"{name}\.pt .*torch\.save\(model\.state_dict\(\)"):
            load_dense(tmp_path / f"{name}.pt")
    assert not (tmp_path / "ran").exists()


def test_a_whole_module_is_refused(tmp_path):
    with pytest.raises(BadInput, match="could run code"):
        load_dense(save_torch(tmp_path / "x.pt", torch.nn.Linear(2, 3)))


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
def test_a_program_is_refused_with_what_to_save(tmp_path):
    torch.jit.trace(torch.nn.Linear(2, 3), torch.ones(1, 2)).save(tmp_path / "x.pt")
    with pytest.raises(BadInput, match=r"is a program of torch .*: save only the tensors"):
        load_dense(tmp_path / "x.pt")


def test_numbers_of_a_type_that_numpy_lacks(tmp_path):
    np.save(tmp_path / "x.npy", WEIGHT.astype(ml_dtypes.bfloat16))
    with pytest.raises(BadInput, match=r"x\.npy is of a type that numpy does not have.*: save it as float32"):
        load_dense(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"weight": torch.ones(2, 3, 4)}, r"weight in .*x\.pt has shape \[2, 3, 4\]"),
        ({"weight": torch.ones(2, 3).to_sparse()}, "sparse float32"),
        ({"weight": torch.ones(2, 3, dtype=torch.int8)}, "int8"),
        ({"weight": torch.ones(2, 3, device="meta")}, "weight .* is float32 without numbers: give"),
        ({"weight": torch.tensor([[1.0], [float("nan")]])}, "first in row 1"),
        ({"weight": torch.ones(2, 3), "bias": torch.ones(3)}, "bias .* 3 entries for 2 rows"),
        ({"epoch": 3}, "holds no tensor"),
    ],
)
def test_wrong_state_dicts(tmp_path, content, words):
    with pytest.raises(BadInput, match=words):
        load_dense(save_torch(tmp_path / "x.pt", content))


@pytest.mark.parametrize(
    ("wrapper", "beside"),
    [
        ("_orig_mod.", {}),
        ("_orig_mod.module.", {}),
        ("state_dict.model.", {}),
        ("module._orig_mod.", {"epoch": torch.ones(())}),
    ],
)
def test_a_trained_head_has_its_own_names_behind_wrappers(tmp_path, wrapper, beside):
    """A head that was trained by `torch.compile` was refused as the head of another method."""
    own = {"head.weight": torch.ones(3, 2), "tail.0.weight": torch.zeros(2, 2)}
    path = save_torch(tmp_path / "x.pt", {wrapper + name: tensor for name, tensor in own.items()} | beside)
    assert load_state(path).keys() == own.keys()


def test_one_tensor_keeps_its_last_name():
    one = {"weight": torch.ones(3, 2)}
    assert strip_wrappers(one) == one
    assert strip_wrappers({"head.weight": one["weight"]}) == one
    assert strip_wrappers({}) == {}
