import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import shortlist
from safetensors.numpy import save_file
from shortlist.bundle.files import sha256
from shortlist.bundle.manifest import FORMAT_VERSION, compute_digest
from shortlist.bundle.reader import Bundle
from shortlist.bundle.writer import is_abandoned, write_version
from shortlist.errors import BundleError, NotFound, VersionExists

from tests.support.layers import copy_writable, make_contexts, make_dense, make_head, run_cli

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


def test_an_array_of_another_shape(bundle):
    path = bundle / "manifest.json"
    arrays = {"exact_weight": {"file": "graphs/weight.bin", "dtype": "float32", "shape": [300, 17]}}
    assert json.loads(path.read_text())["arrays"] == {}, "so small a layer is left to graphs"
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


def test_writing_appears_in_one_rename(tmp_path):
    with write_version(tmp_path / "lm" / "1") as folder:
        (folder / "part").write_text("x")
        assert not (tmp_path / "lm" / "1").exists()
    assert (tmp_path / "lm" / "1" / "part").read_text() == "x"
    assert [path.name for path in (tmp_path / "lm").iterdir()] == ["1"]


def test_a_failure_leaves_nothing(tmp_path):
    def interrupted():
        with write_version(tmp_path / "lm" / "1") as folder:
            (folder / "part").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "lm" / "7").mkdir(parents=True)
    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert [path.name for path in (tmp_path / "lm").iterdir()] == ["7"], "only what was made goes away"


def test_versions_are_immutable(tmp_path):
    (tmp_path / "lm" / "1").mkdir(parents=True)
    with pytest.raises(VersionExists, match="export to the next version"), write_version(tmp_path / "lm" / "1"):
        raise AssertionError("never entered")


@pytest.mark.parametrize("name", ["0", "01", "-1", "latest", "1.0", "٣"])
def test_a_version_is_a_whole_number(tmp_path, name):
    with pytest.raises(BundleError, match="whole number from 1"), write_version(tmp_path / "lm" / name):
        raise AssertionError("never entered")


def files(tmp_path):
    save_file({"weight": make_dense(20_000, 64).weight}, tmp_path / "w.safetensors")
    save_file({"contexts": make_contexts(4000, 64).contexts}, tmp_path / "c.safetensors")
    return ["--weights", tmp_path / "w.safetensors", "--contexts", tmp_path / "c.safetensors"]


def test_a_full_disk(tmp_path):
    """A file-size limit stops the write as a full disk would."""
    import resource

    inputs = files(tmp_path)
    out = tmp_path / "repo" / "lm" / "1"
    limit = 1 << 20
    done = run_cli(
        "export", *inputs, "--out", out, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    assert done.returncode == 1
    assert "cannot be written" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "repo").exists()


def test_a_disk_that_is_full_at_the_last_files(tmp_path):
    """The calibration is larger than what is written before it."""
    import resource

    np.save(tmp_path / "w.npy", make_dense(20, 2000).weight)
    np.save(tmp_path / "c.npy", make_contexts(800, 2000).contexts)
    out, limit = tmp_path / "repo" / "lm" / "1", 300_000
    done = run_cli(
        *("export", "--weights", tmp_path / "w.npy", "--contexts", tmp_path / "c.npy"),
        *("--method", "full", "--out", out),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1
    assert "cannot be written (File too large)" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "repo").exists()


def test_a_killed_export_leaves_no_version_and_the_next_one_cleans_up(tmp_path):
    inputs = files(tmp_path)
    out = tmp_path / "repo" / "lm" / "1"
    command = [sys.executable, "-m", "shortlist", "export", *map(str, inputs), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not list((tmp_path / "repo" / "lm").glob(".unfinished-*/1")) if out.parent.exists() else True:
        assert process.poll() is None, "the export ended before it could be killed"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()
    done = run_cli("export", *inputs, "--out", out)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in out.parent.iterdir()] == ["1"]


def test_exports_of_one_version_at_a_time_keep_their_own_folders(tmp_path):
    """As in two containers, where process ids tell nothing; the slower one is told what happened."""
    out = tmp_path / "lm" / "1"

    def slower():
        with write_version(out) as slow:
            (slow / "part").write_text("slow")
            with write_version(out) as fast:
                assert slow != fast
                assert (slow / "part").exists()
                assert not is_abandoned(slow.parent)
                (fast / "part").write_text("fast")

    with pytest.raises(VersionExists, match="export to the next version"):
        slower()
    assert (out / "part").read_text() == "fast"
    assert [path.name for path in (tmp_path / "lm").iterdir()] == ["1"]


def test_every_user_may_read_a_bundle_and_nobody_write_it(tmp_path):
    """As far as the umask lets them: a container's user is not the one who exported."""
    folder = make_head(tmp_path, make_dense(), labels=["\ud800"] * 300).folder
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "file").touch()
    for path in (folder, *folder.rglob("*")):
        usual = (plain if path.is_dir() else plain / "file").stat().st_mode
        assert path.stat().st_mode == (usual if path.is_dir() or "report" in path.parts else usual & ~0o222), path
    assert Bundle(folder).labels() == ["\ud800"] * 300


@pytest.mark.parametrize("plan", ["oracle", "full", "", ["certified"], 3])
def test_an_exact_plan_that_is_not_known_here(bundle, plan):
    sentence = damaged(rewritten(bundle, exact_plan=plan))
    assert f"needs exact plan '{plan}', known here: certified; upgrade shortlist" in sentence


def test_a_plan_that_is_no_name(bundle):
    assert "needs plan '['full']', known here: full" in damaged(rewritten(bundle, plan=["full"]))
