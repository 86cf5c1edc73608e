import pytest
import torch
from shortlist_models.checkpoint import load_checkpoint, name_training, save_checkpoint


def test_what_was_saved_is_loaded_by_the_same_training_alone(tmp_path):
    path = tmp_path / "state.pt"
    save_checkpoint(path, "seed 0", {"weight": torch.ones(2, 3), "done": 4})
    state = load_checkpoint(path, "seed 0")
    assert torch.equal(state["weight"], torch.ones(2, 3))
    assert state["done"] == 4
    assert load_checkpoint(path, "seed 1") is None
    assert [file.name for file in tmp_path.iterdir()] == ["state.pt"]


def test_a_file_of_something_else_is_no_checkpoint(tmp_path):
    torch.save({"weight": torch.ones(2)}, tmp_path / "state.pt")
    assert load_checkpoint(tmp_path / "state.pt", "seed 0") is None


@pytest.mark.parametrize("content", [torch.ones(3), [1, 2], 3])
def test_a_file_of_torch_that_holds_no_names_is_no_checkpoint(tmp_path, content):
    torch.save(content, tmp_path / "state.pt")
    assert load_checkpoint(tmp_path / "state.pt", "seed 0") is None


def test_the_state_of_another_training_is_kept_and_a_file_that_is_none_for_good(tmp_path):
    path, earlier = tmp_path / "state.pt", tmp_path / "state.pt.earlier"
    for done in range(2):
        save_checkpoint(path, "seed 0", {"done": done})
    assert not earlier.exists()
    for seed in (1, 2):
        save_checkpoint(path, f"seed {seed}", {"done": 0})
        assert load_checkpoint(earlier, f"seed {seed - 1}") is not None
    earlier.unlink()
    torch.save({"weight": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    for seed in (1, 2):
        save_checkpoint(path, f"seed {seed}", {"done": 0})
        assert load_checkpoint(path, f"seed {seed}") is not None
        assert list(torch.load(earlier)) == ["weight"]


def test_a_state_from_a_gpu_is_read_without_one(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("torch.serialization.location_tag", lambda storage: "cuda:0")
        save_checkpoint(tmp_path / "state.pt", "seed 0", {"weight": torch.ones(2)})
    state = load_checkpoint(tmp_path / "state.pt", "seed 0")
    assert torch.equal(state["weight"], torch.ones(2))


def test_without_a_path_nothing_is_kept(tmp_path):
    save_checkpoint(None, "seed 0", {})
    assert load_checkpoint(None, "seed 0") is None
    assert load_checkpoint(tmp_path / "absent.pt", "seed 0") is None


def test_other_options_values_or_shapes_are_another_training():
    data = torch.arange(6.0).reshape(2, 3), torch.tensor([0, 1])
    name = name_training("seed 0", *data)
    assert name_training("seed 0", data[0].clone(), data[1].clone()) == name
    others = [(data[0] + 1, data[1]), (data[0].reshape(3, 2), data[1]), (data[0], None)]
    names = {name, name_training("seed 1", *data), *(name_training("seed 0", *other) for other in others)}
    assert len(names) == 5


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 and no more"])
def test_a_file_that_torch_did_not_write_is_refused(tmp_path, content):
    (tmp_path / "state.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"state\.pt is no whole file of torch"):
        load_checkpoint(tmp_path / "state.pt", "seed 0")


def test_a_folder_that_is_not_there_is_refused_before_the_training(tmp_path):
    with pytest.raises(ValueError, match="make its folder"):
        load_checkpoint(tmp_path / "absent" / "state.pt", "seed 0")


def test_a_folder_is_refused_before_the_training(tmp_path):
    with pytest.raises(ValueError, match="is a folder: name a file in it"):
        load_checkpoint(tmp_path, "seed 0")
