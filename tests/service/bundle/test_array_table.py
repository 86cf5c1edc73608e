"""Bundles whose hashes are right and whose arrays lie: each is refused in one sentence."""

import json

import numpy as np
import pytest
import shortlist
from safetensors.numpy import load_file, save_file
from shortlist.bundle import array_table
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import MAX_BLOCK_CLASSES, SETTINGS
from shortlist.bundle.writer import seal
from shortlist.errors import BundleError
from shortlist_models.rescored.groups import BLOCK_CLASSES

from tests.support.heads.grouped import CLASSES, DIM, OPTIONS
from tests.support.layers import copy_writable, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

L2S = {"clusters": "5", "budget": "40", "rounds": "0", "epochs": "1", "background": "0"}
HUGE = 2**40


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    contexts = make_contexts(800, DIM)
    dense = make_dense(CLASSES, DIM)
    return make_head(tmp_path_factory.mktemp("grouped"), dense, contexts, method="grouped", options=OPTIONS).folder


@pytest.fixture(scope="module")
def l2s(tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("l2s"), make_dense(), method="l2s", options=L2S).folder


@pytest.fixture(scope="module")
def cascade(tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("cascade"), make_dense(), method="cascade", options={}).folder


def reseal(source, folder, file="index.safetensors", **changes):
    """A copy of a bundle with other arrays in one file; None for one that is left out."""
    copy_writable(source, folder)
    arrays = load_file(folder / file)
    for name, change in changes.items():
        arrays[name] = change(arrays[name].copy() if name in arrays else None)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None}, folder / file)
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").unlink()
    seal(folder, manifest)
    return folder


def refusal(folder):
    with pytest.raises(BundleError) as caught:
        shortlist.load(folder)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert sentence.startswith(str(folder))
    assert sentence.endswith(": export the bundle again")
    return sentence


def put(value, *places):
    def change(array):
        array[list(places)] = value
        return array

    return change


def test_addresses_far_outside_once_ended_the_process_at_load(grouped, tmp_path):
    sentence = refusal(reseal(grouped, tmp_path / "1", order=lambda order: order + 2**33))
    assert "has 'order', which holds id 8589" in sentence
    assert "but classes go from 0 to 2002" in sentence


def test_three_wrong_ids_once_ended_it_at_a_query_after_the_canary_had_passed(grouped, tmp_path):
    sentence = refusal(reseal(grouped, tmp_path / "1", order=put(HUGE, 700, 701, 702)))
    assert "has 'order', which holds id 1099511627776" in sentence


def test_scales_that_are_cut_were_read_past_their_end(grouped, tmp_path):
    sentence = refusal(reseal(grouped, tmp_path / "1", code_scale=lambda scale: scale[:3]))
    assert "has 'code_scale', which has shape [3] instead of [2003]" in sentence


def test_ids_of_a_cluster_out_of_range_were_answered(l2s, tmp_path):
    sentence = refusal(reseal(l2s, tmp_path / "1", ids=put(HUGE, -1)))
    assert "has 'ids', which holds id 1099511627776 but classes go from 0 to 299" in sentence


@pytest.mark.parametrize("place", [0, 2, -1])
@pytest.mark.parametrize("wild", [HUGE, -1, -HUGE, 2**62, 3])
def test_wild_offsets_were_tracebacks(l2s, tmp_path, place, wild):
    assert "has 'offsets', which" in refusal(reseal(l2s, tmp_path / "1", offsets=put(wild, place)))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("tail", put(np.nan, 2), "'tail', which holds NaN or infinity"),
        ("tail", lambda tail: tail[:-1], "'tail', which has shape [4] instead of [5]"),
        ("tail", lambda tail: tail.astype(np.float64), "'tail', which is float64 instead of float32"),
        ("ids", lambda ids: ids[::-1].copy(), "has 'ids', which do not ascend"),
        ("ids", lambda ids: ids.astype(np.int32), "'ids', which is int32 instead of int64"),
        ("ids", lambda ids: ids[None], "'ids', which has shape"),
        ("offsets", lambda offsets: None, "has no 'offsets'"),
    ],
)
def test_arrays_of_clusters(l2s, tmp_path, name, change, words):
    assert words in refusal(reseal(l2s, tmp_path / "1", **{name: change}))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("order", put(5, 0, 1), "'order', which holds a class twice"),
        ("order", lambda order: order[:-1], "'starts', which goes from 0 to 2003 instead of from 0 to 2002"),
        ("starts", lambda starts: starts - 1, "'starts', which goes from -1 to 2002"),
        ("starts", put(1, 1), "has 'starts' of groups where no block begins"),
        ("block_starts", lambda starts: np.delete(starts, 1), "'block_starts', which has parts of"),
        ("projection", lambda codes: codes[:, :-1], "'projection', which has shape [30, 67] instead of [W, 68]"),
        ("preview", lambda codes: codes[:, :-1], "do not fit the 30 columns of 'projection'"),
        ("group_codes", lambda codes: np.tile(codes, (2, 1)), "'group_codes', which has shape"),
        ("group_reach", put(np.inf, 0), "'group_reach', which holds NaN or infinity"),
        (
            "tail_term_offsets",
            lambda offsets: np.zeros(3, np.float32),
            "one of 'tail_terms' and 'tail_term_offsets' alone",
        ),
        ("fine_scale", lambda scale: None, "has one of 'fine' and 'fine_scale' alone"),
        ("tail_offset", lambda offset: np.tile(offset, 2), "'tail_offset', which has shape [2] instead of [1]"),
    ],
)
def test_arrays_of_groups(grouped, tmp_path, name, change, words):
    assert words in refusal(reseal(grouped, tmp_path / "1", **{name: change}))


def test_the_order_of_a_cascade(cascade, tmp_path):
    assert "'order', which holds id -5" in refusal(reseal(cascade, tmp_path / "1", order=put(-5, 7)))


def test_common_classes_that_there_are_not(cascade, tmp_path):
    folder = copy_writable(cascade, tmp_path / "1")
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").unlink()
    seal(folder, manifest.model_copy(update={"settings": manifest.settings.model_copy(update={"common": 301})}))
    assert "has 300 classes, which do not fit the setting common=301" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("contexts", lambda rows: rows[:, :-1], "'contexts', which has shape"),
        ("contexts", put(np.nan, 3), "'contexts', which holds NaN or infinity"),
        ("head_ids", put(HUGE, 3), "'head_ids', which holds id 1099511627776"),
        ("head_ids", lambda ids: np.tile(ids, 2), "'head_logprobs', which has shape"),
        ("ids", lambda ids: ids[:, :3], "'logprobs', which has shape"),
    ],
)
def test_the_calibration(cascade, tmp_path, name, change, words):
    folder = reseal(cascade, tmp_path / "1", "calibration.safetensors", **{name: change})
    from shortlist.evaluation.checked_head import load_and_check, open_bundle

    with pytest.raises(BundleError, match=r"calibration\.safetensors has") as caught:
        load_and_check(open_bundle(folder))
    assert words in str(caught.value)


def test_a_file_of_a_type_that_numpy_does_not_know(l2s, tmp_path):
    folder = copy_writable(l2s, tmp_path / "1")
    header = json.dumps({"ids": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (folder / "index.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").unlink()
    seal(folder, manifest)
    assert "index.safetensors cannot be read" in refusal(folder)


def test_what_has_no_rule_cannot_be_read(l2s, tmp_path):
    folder = reseal(l2s, tmp_path / "1", other=lambda none: np.ones(3))
    assert Bundle(folder).tensors("index.safetensors").keys() == {"ids", "offsets", "tail"}


def test_blocks_are_as_long_as_loops_score_side_by_side():
    layout = pytest.importorskip("shortlist.kernels.primitives.layout")
    assert MAX_BLOCK_CLASSES == layout.LANES == BLOCK_CLASSES


def test_every_rule_is_of_a_plan_that_there_is():
    assert array_table.INDEX.keys() == array_table.INDEX_RELATIONS.keys()
    assert array_table.INDEX.keys() == SETTINGS.keys() - {"full", "preview"}


@pytest.mark.parametrize(
    ("gates", "columns", "fits"),
    [(3, 4 * 8 + 9, True), (3, 3 * 8 + 9, True), (1, 8 + 3, True), (3, 4 * 8 + 10, False), (3, 5 * 8 + 9, False),
     (5, 6 * 8 + 15, False), (3, 9, False)],
)  # fmt: skip
def test_layers_of_a_mixture_are_of_as_many_components_as_gates_decide_on(gates, columns, fits):
    fault = array_table.check_components(np.zeros((8, columns)), {"d": 8, "gates": gates, "gate_width": 2})
    assert fault == (None if fits else "has no whole number of components for its gates")
