import json

import pytest
from shortlist.errors import ShortlistError
from shortlist_exporter.capture.files import write_head, write_labels


def test_every_user_may_read_the_weights(tmp_path, model):
    write_head(tmp_path / "h.safetensors", model.dense, "tiny")
    write_labels(tmp_path / "labels.json", ["\ud800"])
    assert (tmp_path / "h.safetensors").stat().st_mode == (tmp_path / "labels.json").stat().st_mode
    assert json.loads((tmp_path / "labels.json").read_text()) == ["\ud800"]


def test_a_folder_that_cannot_be_written(tmp_path, model):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ShortlistError, match="cannot be written"):
        write_head(tmp_path / "file" / "h.safetensors", model.dense, "tiny")
