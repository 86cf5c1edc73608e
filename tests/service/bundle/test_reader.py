import errno
import json
from pathlib import Path

import numpy as np
import pytest
import shortlist
from shortlist.bundle import files, reader
from shortlist.bundle.files import sha256
from shortlist.bundle.manifest import FORMAT_VERSION, compute_digest
from shortlist.bundle.names import NAME_ROLES
from shortlist.bundle.reader import Bundle
from shortlist.errors import BadInput, BundleError, NotFound

from tests.support.layers import copy_writable, make_dense

pytestmark = pytest.mark.slow


@pytest.fixture
def bundle(small_repository, tmp_path):
    """A copy to damage."""
    return copy_writable(small_repository / "lm" / "1", tmp_path / "lm" / "1")


def damaged(bundle):
    with pytest.raises(BundleError) as caught:
        shortlist.load(bundle)
    assert str(caught.value).count("\n") == 0
    return str(caught.value)


def test_opens(bundle):
    assert Bundle(bundle).manifest.name == "lm"


def test_a_path_that_is_not_utf8_is_refused(bundle, tmp_path):
    """ONNX Runtime takes none: its own sentence would blame the bundle."""
    place = tmp_path / "h\udcfcte"
    bundle.parent.rename(place)
    with pytest.raises(BadInput, match=r"h\\udcfcte/1 is not UTF-8, .*: rename the folder, or set LC_ALL=C.UTF-8"):
        shortlist.load(place / "1")


def test_a_folder_of_versions_is_refused_with_its_newest(bundle):
    assert damaged(bundle.parent).endswith(f"has no manifest.json; name a version, as in {bundle}")


def test_a_folder_of_nothing_is_refused(tmp_path):
    assert damaged(tmp_path).endswith("is not a bundle: it has no manifest.json")


@pytest.mark.parametrize("name", ["graphs/weight.bin", "graphs/preview.onnx", "calibration.safetensors", "labels.json"])
def test_a_truncated_file(bundle, name):
    content = (bundle / name).read_bytes()
    (bundle / name).write_bytes(content[: len(content) // 2])
    assert name in damaged(bundle)


def test_an_edited_file_of_the_same_size(bundle):
    content = bytearray((bundle / "graphs" / "weight.bin").read_bytes())
    content[100] ^= 1
    (bundle / "graphs" / "weight.bin").write_bytes(content)
    assert "SHA-256 differs" in damaged(bundle)


def test_a_missing_file(bundle):
    (bundle / "graphs" / "rows.onnx").unlink()
    assert "rows.onnx is missing" in damaged(bundle)


def test_an_edited_manifest(bundle):
    path = bundle / "manifest.json"
    path.write_text(path.read_text().replace('"max_k": 300', '"max_k": 299'))
    assert "digest differs" in damaged(bundle)


def test_a_manifest_that_is_not_json(bundle):
    (bundle / "manifest.json").write_text("{")
    assert "cannot be read" in damaged(bundle)


def test_a_newer_format(bundle):
    path = bundle / "manifest.json"
    content = json.loads(path.read_text()) | {"format": FORMAT_VERSION + 1, "surprise": []}
    path.write_text(json.dumps(content | {"digest": compute_digest(content)}))
    assert f"has format {FORMAT_VERSION + 1}" in damaged(bundle)


def rewritten(bundle, **fields):
    """The bundle with other fields in its manifest, its digest as it should be."""
    path = bundle / "manifest.json"
    content = json.loads(path.read_text()) | fields
    path.write_text(json.dumps(content | {"digest": compute_digest(content)}))
    return bundle


@pytest.mark.parametrize("name", ["", "a\n", "a\nERROR b", "../lm", "a b", "x" * 256])
def test_a_name_that_no_model_has(bundle, name):
    """Errors of a head say it, each of which is one line."""
    sentence = damaged(rewritten(bundle, name=name))
    assert "is not a valid manifest at 'name'" in sentence
    assert sentence.isprintable()


def test_the_format_before_is_refused_in_one_sentence(bundle):
    """With `options` in the place of `settings` and `fit`, and no `arrays`."""
    path = bundle / "manifest.json"
    content = json.loads(path.read_text())
    options = content.pop("settings") | content.pop("fit")
    del content["arrays"], content["exact_plan"]
    path.write_text(json.dumps(content | {"format": 3, "options": options, "digest": compute_digest(content)}))
    assert damaged(bundle) == f"{path} has format 3 and this Shortlist reads {FORMAT_VERSION}: export the bundle again"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"full_view": 0, "tail_shift": 0.0}, "full_view=0 is wrong: Input should be greater than or equal to 1"),
        ({"full_view": 40, "tail_shift": "far"}, "tail_shift=far is wrong"),
        ({"full_view": 40}, "tail_shift is missing"),
        ({"full_view": 40, "tail_shift": 0.0, "probes": 2}, "probes is not known"),
        ([], "valid dictionary"),
    ],
)
def test_settings_out_of_range(bundle, settings, words):
    sentence = damaged(rewritten(bundle, settings=settings))
    assert words in sentence
    assert "is not a valid manifest at 'settings'" in sentence
    assert sentence.endswith("export the bundle again")


@pytest.mark.parametrize("fields", [{"later": 3}, {"settings": {"full_view": 40, "tail_shift": 0.0, "later": 2}}])
def test_what_a_newer_version_wrote_is_to_be_read_by_that_one(bundle, fields):
    sentence = damaged(rewritten(bundle, **fields))
    assert "later" in sentence
    assert "upgrade shortlist if a newer one made the bundle" in sentence


def test_an_array_of_another_shape(bundle):
    path = bundle / "manifest.json"
    arrays = {"exact_weight": {"file": "graphs/weight.bin", "dtype": "float32", "shape": [300, 17]}}
    before = json.loads(path.read_text())["arrays"]
    assert set(before) == set(NAME_ROLES), "so small a layer is left to graphs"
    with pytest.raises(BundleError, match=r"weight.bin is not the float32 array \[300, 17\] of 'exact_weight'"):
        Bundle(rewritten(bundle, arrays=arrays)).map_array("exact_weight")
    arrays["exact_weight"]["shape"] = [300, 16]
    weight = Bundle(rewritten(bundle, arrays=arrays)).map_array("exact_weight")
    np.testing.assert_array_equal(weight, make_dense().weight)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"classes": 0}, "at 'classes' (Input should be greater than or equal to 1)"),
        ({"dim": 2**31}, "at 'dim' (Input should be less than or equal to 2147483647)"),
        ({"dim": 10**30}, "at 'dim'"),
        ({"max_k": 301}, "at 'its fields together' (Value error, max_k=301 is over classes=300)"),
        ({"version": 0}, "at 'version'"),
        ({"logit_scale": 0.0}, "at 'logit_scale' (Input should be greater than 0)"),
        ({"logit_scale": -1.0}, "at 'logit_scale'"),
        ({"logit_scale": float("nan")}, "at 'logit_scale'"),
        ({"soft_cap": 0.0}, "at 'soft_cap'"),
        ({"soft_cap": 1e39}, "at 'soft_cap' (Input should be less than or equal to 34"),
        ({"dense_crossover": 0}, "at 'dense_crossover'"),
        ({"reference": "self"}, "plan preview has no distribution of its own"),
        ({"reference": "self", "exact_plan": "certified"}, "plan preview has no distribution of its own"),
        ({"exact_plan": "certified", "graphs": {}}, "an exact plan needs the dense layer"),
        ({"graphs": {"dense": "../1/graphs/dense.onnx"}}, "is no file below the bundle's folder"),
        ({"graphs": {"dense": "/etc/passwd"}}, "'/etc/passwd' is no file below the bundle's folder"),
        ({"graphs": {"dense": "graphs/./dense.onnx"}}, "is no file below the bundle's folder"),
        ({"graphs": {"dense": "graphs/a\nb.onnx"}}, "'graphs/a\\nb.onnx' is no file below the bundle's folder"),
        ({"graphs": {"x" * 5000: 3}}, "at 'graphs.xxx"),
        ({"graphs": {"dense": "graphs/none.onnx"}}, "has no hash of graphs/none.onnx"),
        ({"arrays": {"exact_weight": {"file": "a", "dtype": "float32", "shape": [-300, -16]}}}, "at 'arrays.exact"),
        ({"arrays": {"exact_weight": {"file": "a", "dtype": "float32", "shape": []}}}, "at 'arrays.exact_weight"),
        ({"settings": {"full_view": 2**31, "tail_shift": 0.0}}, "full_view=2147483648 is wrong"),
        ({"settings": {"full_view": 40, "tail_shift": 1e308}}, "tail_shift=1e+308 is wrong"),
        ({"settings": {"full_view": [[1] * 5000], "tail_shift": 0.0}}, "full_view=[[1, 1"),
    ],
)
def test_manifests_that_lie(bundle, fields, words):
    sentence = damaged(rewritten(bundle, **fields))
    assert words in sentence
    assert len(sentence) < 500
    assert sentence.isprintable()
    assert sentence.endswith("export the bundle again")


@pytest.mark.parametrize("labels", [b"[]", b"{", b"\xff", b'["a"]', b"{}", b"3", b"[" * 100_000])
def test_labels_that_are_none(bundle, labels):
    (bundle / "labels.json").write_bytes(labels)
    content = json.loads((bundle / "manifest.json").read_text())
    entry = {"size": len(labels), "sha256": sha256(bundle / "labels.json")}
    sentence = damaged(rewritten(bundle, files=content["files"] | {"labels.json": entry}))
    assert "labels.json" in sentence
    assert sentence.endswith("export the bundle again")


def test_an_unknown_plan(bundle):
    path = bundle / "manifest.json"
    content = json.loads(path.read_text()) | {"plan": "oracle"}
    path.write_text(json.dumps(content | {"digest": compute_digest(content)}))
    assert "needs plan 'oracle'" in damaged(bundle)


def test_no_bundle(tmp_path):
    with pytest.raises(NotFound, match="there is no bundle"):
        shortlist.load(tmp_path / "absent" / "1")
    with pytest.raises(BundleError, match="has no manifest"):
        shortlist.load(tmp_path)


@pytest.mark.parametrize("plan", ["oracle", "full", "", ["certified"], 3])
def test_an_exact_plan_that_is_not_known_here(bundle, plan):
    sentence = damaged(rewritten(bundle, exact_plan=plan))
    assert f"needs exact plan '{plan}', known here: certified; upgrade shortlist" in sentence


def test_a_plan_that_is_no_name(bundle):
    assert "needs plan '['full']', known here: full" in damaged(rewritten(bundle, plan=["full"]))


def test_a_file_that_the_system_refuses_is_not_called_damaged(bundle, monkeypatch):
    opened = Bundle(bundle)

    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(reader, "load_file", refuse)
    monkeypatch.setattr(reader.Path, "open", refuse)
    with pytest.raises(BundleError, match=r"safetensors cannot be read \(Too many open files\): mend that"):
        opened.tensors(reader.CALIBRATION_FILE)


def test_too_many_open_files_are_no_lack_of_access(bundle, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(files, "check_size", refuse)
    with pytest.raises(BundleError, match=r"cannot be read \(Too many open files\): mend that"):
        Bundle(bundle)


def test_a_bundle_of_somebody_else_is_not_to_be_exported_again(small_repository, monkeypatch):
    """As one that root exported with a umask of 077, for a service that runs as nobody."""

    def refuse(self, *rest, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(BundleError, match=r"cannot be read \(Permission denied\): give this user access to the bundle"):
        Bundle(small_repository / "lm" / "1")
