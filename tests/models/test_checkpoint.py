import torch
from shortlist_models.checkpoint import load_checkpoint, save_checkpoint


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


def test_without_a_path_nothing_is_kept(tmp_path):
    save_checkpoint(None, "seed 0", {})
    assert load_checkpoint(None, "seed 0") is None
    assert load_checkpoint(tmp_path / "absent.pt", "seed 0") is None
