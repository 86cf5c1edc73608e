"""Bundles whose graphs are not those of their plan: each is refused in one sentence."""

import shutil
from pathlib import Path

import onnx
import pytest
import shortlist
from onnx import TensorProto
from shortlist.bundle.graph_table import BY_PLAN, find_signature
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import SETTINGS
from shortlist.bundle.writer import seal
from shortlist.core.graph_file import ANY_SIZE, TensorType
from shortlist.errors import BundleError

from tests.support.layers import copy_writable, make_dense, make_head

pytestmark = pytest.mark.slow


@pytest.fixture
def bundle(small_repository, tmp_path):
    """A copy of a bundle of plan preview, to change."""
    return copy_writable(small_repository / "lm" / "1", tmp_path / "lm" / "1")


def reseal(folder: Path, **fields):
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").unlink()
    return seal(folder, manifest.model_copy(update=fields))


def refusal(folder: Path) -> str:
    with pytest.raises(BundleError) as caught:
        shortlist.load(folder)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert sentence.endswith(": export the bundle again")
    return sentence


def change_graph(folder: Path, file: str, change):
    path = folder / "graphs" / file
    model = onnx.load(path, load_external_data=False)
    change(model.graph)
    path.write_bytes(model.SerializeToString())
    reseal(folder)
    return refusal(folder)


def rename(old, new):
    def change(graph):
        for node in graph.node:
            node.input[:] = [new if name == old else name for name in node.input]
            node.output[:] = [new if name == old else name for name in node.output]
        next(value for value in [*graph.input, *graph.output] if value.name == old).name = new

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rename("context", "contexts"), "has the inputs contexts instead of context"),
        (rename("logits", "scores"), "has the outputs scores instead of logits"),
        (lambda graph: graph.output.append(graph.output[0]), "has the outputs logits, logits instead of logits"),
    ],
)
def test_other_names(bundle, change, words):
    assert words in change_graph(bundle, "preview.onnx", change)


def test_an_input_more(bundle):
    def change(graph):
        graph.input.append(onnx.helper.make_tensor_value_info("k", TensorProto.INT64, [1]))

    assert "has the inputs context, k instead of context" in change_graph(bundle, "preview.onnx", change)


def test_a_graph_that_fixes_the_number_of_rows(bundle):
    def change(graph):
        graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3

    sentence = change_graph(bundle, "preview.onnx", change)
    assert "has context as tensor(float) [3, 16] instead of tensor(float) [*, 16]" in sentence


def test_the_graph_of_another_role(bundle):
    manifest = Bundle(bundle).manifest
    reseal(bundle, graphs=manifest.graphs | {"preview": manifest.graphs["rows"]})
    assert "rows.onnx has the inputs context, ids instead of context" in refusal(bundle)


def test_the_graph_of_another_layer(bundle, tmp_path):
    other = make_head(tmp_path / "other", make_dense(301), method="full", options={})
    for path in (other.folder / "graphs").iterdir():
        shutil.copyfile(path, bundle / "graphs" / path.name)
    reseal(bundle)
    assert "has logits as tensor(float) ['B', 301] instead of tensor(float) [*, 300]" in refusal(bundle)


@pytest.mark.parametrize(("key", "value"), [("length", "10000000"), ("offset", "4096000"), ("location", "missing.bin")])
def test_weights_outside_of_their_file(bundle, key, value):
    def change(graph):
        tensor = next(tensor for tensor in graph.initializer if tensor.external_data)
        next(entry for entry in tensor.external_data if entry.key == key).value = value

    assert "ONNX Runtime cannot load" in change_graph(bundle, "dense.onnx", change)


def test_a_graph_that_is_missing(bundle):
    graphs = {role: file for role, file in Bundle(bundle).manifest.graphs.items() if role != "preview"}
    reseal(bundle, graphs=graphs)
    assert refusal(bundle).startswith(f"{bundle} has no graph 'preview' for its plan preview and settings")


@pytest.mark.parametrize("staged", [False, True])
def test_clusters_of_one_stage_for_those_of_two(tmp_path, staged):
    options = {"clusters": "3", "budget": "30", "rounds": "0", "epochs": "1", "background": "0"}
    stage = {"second_stage": "int8", "width": "8"} if staged else {}
    folder = make_head(tmp_path, make_dense(), method="l2s", options=options | stage).folder
    settings = Bundle(folder).manifest.settings
    reseal(folder, settings=settings.model_copy(update={"second_stage": not staged}))
    assert "no graph 'any'" in refusal(folder) if not staged else "has the inputs context instead of" in refusal(folder)


def test_sizes_come_from_the_manifest_and_from_arrays(bundle):
    manifest = Bundle(bundle).manifest
    signature = find_signature("preview", manifest, {"V": 300, "d": 16}, [])
    assert signature.inputs == {"context": TensorType("float", (None, 16))}
    assert signature.outputs == {"logits": TensorType("float", (None, 300))}
    assert find_signature("fused", manifest, {"V": 300, "d": 16}, []) is None


def test_every_plan_has_its_graphs_and_every_type_can_be_read():
    assert BY_PLAN.keys() == SETTINGS.keys()
    texts = [
        text for graphs in BY_PLAN.values() for types in graphs.values() for part in types for text in part.values()
    ]
    assert {text.split()[0] for text in texts} == {"float", "int64", "uint8", "bool"}
    assert ANY_SIZE == -1
