import json

import pytest
from shortlist.bundle.names import Names
from shortlist.errors import BadInput, NotFound
from shortlist_exporter.inputs.class_lists import load_set

NAMES = Names.make(["tea", "7", "mug"])


@pytest.mark.parametrize(
    ("name", "content", "names", "ids"),
    [
        ("some.txt", "4\n2\n", None, [4, 2]),
        ("some.json", json.dumps([4, 2]), None, [4, 2]),
        ("some.txt", "mug\n7\n", NAMES, [2, 1]),
        ("some.json", json.dumps(["mug", 7]), NAMES, [2, 1]),
        ("some.txt", "", None, []),
        ("some.txt", "\ufeffmug\n7\n", NAMES, [2, 1]),
        ("some.json", "\ufeff" + json.dumps([4, 2]), None, [4, 2]),
    ],
)
def test_a_set_of_a_file(tmp_path, name, content, names, ids):
    path = tmp_path / name
    path.write_text(content, "utf-8")
    found, values = load_set(f"few={path}", names)
    assert (found, values.tolist()) == ("few", ids)


def test_files_that_hold_no_set(tmp_path):
    path = tmp_path / "some.txt"
    path.write_text("mug\n", "utf-8")
    ids = tmp_path / "ids.json"
    ids.write_text("[7]", "utf-8")
    with pytest.raises(BadInput, match="give --names, too"):
        load_set(f"few={path}", None)
    with pytest.raises(BadInput, match="holds '7', which no class of the bundle is called: with --names give names"):
        load_set(f"few={ids}", Names.make(["mug"]))
    with pytest.raises(BadInput, match="NAME=FILE"):
        load_set("few", None)
    with pytest.raises(NotFound, match="no file"):
        load_set(f"few={tmp_path / 'none'}", None)
    (tmp_path / "some.json").write_text("{}", "utf-8")
    with pytest.raises(BadInput, match="JSON list"):
        load_set(f"few={tmp_path / 'some.json'}", None)
    for number in (1 << 80, -1):
        (tmp_path / "some.json").write_text(str([2, number]), "utf-8")
        with pytest.raises(BadInput, match="a number that no class has: give ids from 0 on"):
            load_set(f"few={tmp_path / 'some.json'}", None)
