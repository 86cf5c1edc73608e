"""Mutations of a bundle: of its arrays, its manifest, its files, its graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from .array_mutations import mutate_array
from .draft import Draft

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 3, 7, 15, 16, 17, 19, 20, 21, 300, 1099, 1100, 1101, 2**15, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1,
    2**63, 2**64, -(2**63), 10**30, 10**400, 0.5, -0.5, 1e-30, 1e30, 3.4e38, 1e39, 1e308, float("nan"), float("inf"),
    -float("inf"),
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, True, False, "", "0", "rows", "x" * 5000, "a\nb", "../x", "/etc/passwd", "\0", [], {}, [0],
)  # fmt: skip
SEALED_KEYS = ("digest", "files", "provenance", "fit")  # other mutations are for the files; no plan reads the rest
MUTATION_COUNTS = (1, 1, 1, 1, 2, 3)
SAFETENSORS, EXTERNAL, GRAPH = ".safetensors", ".bin", ".onnx"

Place = tuple[Any, Any]  # a container of the manifest, and a key or index of it


def make_draft(samples: list[Path], seed: int, index: int) -> Draft:
    """Mutated bundle number `index`; it depends on the seed, the number and the samples alone."""
    random = Random(f"{seed} {index}")
    draft = Draft(samples[index % len(samples)])
    for _ in range(random.choice(MUTATION_COUNTS)):
        mutation = random.choice(MUTATIONS)
        draft.notes.append(f"{mutation.__name__}: {mutation(draft, random)}")
    return draft


def change_index(draft: Draft, random: Random) -> str:
    """An array that a plan reads."""
    names = [name for name in draft.list_files(SAFETENSORS) if name not in draft.files]
    if not names:
        return "nothing"
    name = "index.safetensors" if "index.safetensors" in names and random.random() < 0.7 else random.choice(names)
    arrays = draft.read_arrays(name)
    key = random.choice(sorted(arrays))
    if random.random() < 0.03:
        del arrays[key]
        how = "deleted"
    else:
        arrays[key], how = mutate_array(arrays[key], random)
    draft.write_arrays(name, arrays)
    return f"{key} of {name} {how}"


def change_number(draft: Draft, random: Random) -> str:
    """A number of the manifest, or of what it says of a raw array."""
    places = [place for place in list_places(draft.content) if is_number(place[0][place[1]])]
    inside, key = random.choice(places)
    value = inside[key]
    near = [value + 1, value - 1, value * 2, -value]
    inside[key] = random.choice((*NUMBERS, *near, *near))
    return f"{key} {value} to {str(inside[key])[:40]}"


def change_field(draft: Draft, random: Random) -> str:
    """Anything of the manifest: another value, none, or that of another field."""
    places = list(list_places(draft.content))
    inside, key = random.choice(places)
    before = str(inside[key])[:60]
    if random.random() < 0.2 and isinstance(inside, dict):
        del inside[key]
        return f"{key} deleted"
    other, other_key = random.choice(places)
    inside[key] = deepcopy(random.choice((random.choice(OTHERS), random.choice(NUMBERS), other[other_key])))
    return f"{key} {before} to {str(inside[key])[:60]!r}"


def swap_files(draft: Draft, random: Random) -> str:
    """The files of two graphs, or of two arrays."""
    kind = random.choice(("graphs", "arrays"))
    entries = draft.content.get(kind)
    if not isinstance(entries, dict) or len(entries) < 2:
        return "nothing"
    one, other = random.sample(sorted(entries), 2)
    entries[one], entries[other] = entries[other], entries[one]
    return f"{one} and {other}"


def list_places(content: Any) -> Iterator[Place]:
    """Every value of the manifest but those that `SEALED_KEYS` name, whole containers too."""
    keys = [key for key in content if key not in SEALED_KEYS] if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield content, key
        if isinstance(content[key], dict | list):
            yield from list_places(content[key])


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cut_file(draft: Draft, random: Random) -> str:
    """A file that is shorter or longer, or of which the manifest says another size."""
    name = random.choice(draft.list_files(""))
    content = draft.read(name)
    how = random.randrange(4)
    if how == 0:
        draft.sizes[name] = random.choice((0, -1, 2**63, len(content) - 1, len(content) + 1))
        return f"{name} said to be of {draft.sizes[name]} bytes"
    if how == 1 and random.random() < 0.3:
        draft.files[name] = None
        return f"{name} deleted"
    size = random.choice((0, 1, 8, len(content) // 2, max(0, len(content) - 4), max(0, len(content) - 1)))
    draft.files[name] = content[:size] if how < 3 else content + bytes(random.choice((1, 4, 4096)))
    return f"{name} from {len(content)} to {len(draft.files[name])} bytes"


def change_weights(draft: Draft, random: Random) -> str:
    """Numbers of a raw file, as bytes or as float32."""
    names = draft.list_files(EXTERNAL)
    if not names:
        return "nothing"
    name = random.choice(names)
    content = bytearray(draft.read(name))
    for _ in range(random.choice((1, 3, 50))):
        if len(content) >= 4:
            place = 4 * random.randrange(len(content) // 4)
            number = random.choice((np.nan, np.inf, -np.inf, 3e38, -3e38, 1e20, 0.0))
            content[place : place + 4] = random.choice((np.float32(number).tobytes(), random.randbytes(4)))
    draft.files[name] = bytes(content)
    return name


def change_labels(draft: Draft, random: Random) -> str:
    if "labels.json" not in draft.content["files"]:
        return "nothing"
    labels = json.loads((draft.source / "labels.json").read_bytes())
    changed = random.choice((labels[:-1], [*labels, "x"], [*labels[:-1], 3], {}, None, "x" * 1100, [None] * 1100, []))
    draft.files["labels.json"] = json.dumps(changed).encode()
    return str(changed)[:30]


def change_graph(draft: Draft, random: Random) -> str:
    """What a graph takes, gives, or reads beside it."""
    names = [name for name in draft.list_files(GRAPH) if name not in draft.files]
    if not names:
        return "nothing"
    name = random.choice(names)
    model = parse_model(draft, name)
    changes = (rename_value, change_type, change_shape, change_external, drop_value, change_initializer)
    change = random.choice(changes)
    how = change(model.graph, random)
    draft.files[name] = model.SerializeToString()
    return f"{name} {change.__name__} {how}"


def parse_model(draft: Draft, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.ParseFromString(draft.read(name))
    return model


def choose_value(graph: onnx.GraphProto, random: Random) -> onnx.ValueInfoProto:
    return random.choice([*graph.input, *graph.output])


def rename_value(graph: onnx.GraphProto, random: Random) -> str:
    """Everywhere, so that the graph stays whole."""
    value = choose_value(graph, random)
    old, new = value.name, f"{value.name}_x"
    for node in graph.node:
        node.input[:] = [new if each == old else each for each in node.input]
        node.output[:] = [new if each == old else each for each in node.output]
    value.name = new
    return old


def change_type(graph: onnx.GraphProto, random: Random) -> str:
    value = choose_value(graph, random)
    kinds = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8)
    value.type.tensor_type.elem_type = random.choice(kinds)
    return value.name


def change_shape(graph: onnx.GraphProto, random: Random) -> str:
    value = choose_value(graph, random)
    axes = value.type.tensor_type.shape.dim
    how = random.randrange(4)
    if how == 0 or not axes:
        axes.add().dim_value = 1
    elif how == 1:
        del axes[random.randrange(len(axes))]
    elif how == 2:
        random.choice(axes).dim_value = random.choice((0, 1, 3, 19, 21, 1099, 2**40))
    else:
        random.choice(axes).dim_param = "some"
    return value.name


def change_external(graph: onnx.GraphProto, random: Random) -> str:
    """Where the bytes of a weight lie."""
    tensors = [tensor for tensor in graph.initializer if tensor.external_data]
    if not tensors:
        return "nothing"
    entry = random.choice(random.choice(tensors).external_data)
    entry.value = random.choice((
        "0", "4", "-1", "4096", "1000000", str(2**31), str(2**62), str(2**63), "", "x", "../../x.bin", "/etc/passwd",
        "weight.bin", "missing.bin",
    ))  # fmt: skip
    return f"{entry.key} {entry.value}"


def drop_value(graph: onnx.GraphProto, random: Random) -> str:
    """An output, or a node."""
    parts = graph.output if random.random() < 0.5 else graph.node
    if not parts:
        return "nothing"
    del parts[random.randrange(len(parts))]
    return "an output" if parts is graph.output else "a node"


def change_initializer(graph: onnx.GraphProto, random: Random) -> str:
    """A small array inside a graph: axes, ends, counts, ids."""
    tensors = [tensor for tensor in graph.initializer if not tensor.external_data]
    if not tensors:
        return "nothing"
    tensor = random.choice(tensors)
    array, how = mutate_array(numpy_helper.to_array(tensor), random)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return f"{tensor.name} {how}"


MUTATIONS: tuple[Callable[[Draft, Random], str], ...] = (
    *[change_index] * 9, *[change_number] * 3, change_field, change_field, swap_files, cut_file, cut_file,
    change_weights, change_labels, *[change_graph] * 2,
)  # fmt: skip
