"""The output layer of a local Hugging Face folder. The model itself is neither built nor loaded."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from shortlist.core.extras import require
from shortlist.errors import BadInput, NotFound

from . import tensor_file, torch_file
from .base import ADAPTER_MODULES, BIAS, WEIGHT, Choice, Ids, Layer, Tensors, join_names, make_layer, no_ids
from .model_settings import (
    BIAS_NAMES,
    CLASSIFIER_MODULES,
    EMBEDDING_MODULES,
    LOGIT_SCALE_SETTINGS,
    LONE_BIASES,
    LONE_OUTPUTS,
    OUTPUT_MODULES,
    SOFT_CAP_SETTINGS,
    ends_with,
    has_module,
    read_factors,
)

MAX_REASON_CHARACTERS = 200
INDEX_FILES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
PART_INDEX = dict(zip((".safetensors", ".bin"), INDEX_FILES, strict=True))  # by the ending of the parts of a model
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
# Of a model of these classes embeddings are no output layer, though the settings say that they are tied to one.
CLASSES_WITHOUT_OUTPUT = re.compile(
    r"(Classification|QuestionAnswering|MultipleChoice|NextSentencePrediction|ElectraForPreTraining"
    r"|(?<!LMHead)(?<!MT)(?<!EncoderDecoder)Model)$"
)
ADAPTER_FILE = "adapter_config.json"  # of a folder of peft
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
SCALES_BEFORE_LAYER = ("minicpm3",)  # families whose scale is of the context, before the layer
# `logits_scaling` divides, but for this family; every other scale multiplies.
DIVIDING_SETTING, MULTIPLYING_FAMILY = "logits_scaling", "hyperclovax"

Files = Mapping[str, Path]


def read_folder_layer(path: Path, choice: Choice) -> Layer:
    """Read `lm_head.weight`, the embeddings where they are tied to it, or the tensor chosen; raises NotFound, BadInput.

    Scale and soft-cap are those of the settings, but of a classifier chosen. Padded are the rows that the folder's
    tokenizer gives no token.
    """
    config, files = load_config(path), map_weight_files(path)
    name = choice.weight or find_output_weight(path, files, config)
    tensors = read_weight_file(find_file(files, name, path))
    layer = add_bias(make_layer(tensors, name, None), files, choice.bias, path)
    if has_module(name, CLASSIFIER_MODULES):
        return layer
    return replace(
        layer,
        padded=find_padding(path, len(layer.weight)) if layer.weight.ndim and choice.weight is None else no_ids(),
        logit_scale=read_logit_scale(config),
        soft_cap=next(iter(read_factors(config.get_text_config(), SOFT_CAP_SETTINGS)), None),
    )


def import_transformers() -> Any:
    """The transformers library, kept off the network; raises MissingExtra."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    library = require("transformers", "capture")
    library.utils.logging.set_verbosity_error()
    return library


def load_config(folder: Path) -> Any:
    """The model's settings, with its architecture's defaults; raises BadInput."""
    refuse_adapter(folder)
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} has no config.json: give a Hugging Face folder, or a file of weights by its own name")
    library = import_transformers()
    try:
        return library.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # settings that contradict one another raise the base class alone
        raise BadInput(
            f"config.json of {folder} cannot be read ({find_reason(error)}): give the file of weights and --tensor"
        ) from error


def refuse_adapter(folder: Path) -> None:
    """Raise BadInput where the folder holds what changes a model, not a model."""
    if (folder / ADAPTER_FILE).is_file():
        raise BadInput(
            f"{folder} holds an adapter: merge it into its model by peft's merge_and_unload(), and give the folder "
            "that save_pretrained() writes then"
        )


def find_reason(error: Exception) -> str:
    """The first line of what a library says of an error, or of the one that caused it, as a part of a sentence."""
    lines = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
    return lines[0][:MAX_REASON_CHARACTERS].rstrip(".")


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a folder, or of a tokenizer.json; raises BadInput, MissingExtra."""
    library = import_transformers()
    try:
        if path.is_file():
            return library.PreTrainedTokenizerFast(tokenizer_file=str(path))
        return library.AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises the base class alone
        raise BadInput(f"{path} holds no tokenizer that can be read: give tokenizer.json or its folder") from error


def map_weight_files(folder: Path) -> Files:
    """Map every tensor's name to the file that holds it; raises NotFound, BadInput."""
    for name in INDEX_FILES:
        if (folder / name).is_file():
            return read_index(folder / name)
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return dict.fromkeys(read_weight_file(folder / name).tensors, folder / name)
    if parts := sorted(path.name for path in folder.glob("*-of-*") if path.suffix in PART_INDEX):
        index = PART_INDEX[Path(parts[0]).suffix]
        raise NotFound(f"{folder} has {parts[0]} but no {index}, which says what is where: copy that there, too")
    raise NotFound(f"{folder} has none of {', '.join(WEIGHT_FILES + INDEX_FILES)}: copy the model's weights there")


def read_index(index: Path) -> Files:
    """The files that an index names, all of them beside it; raises BadInput."""
    try:
        entries = json.loads(index.read_text("utf-8"))["weight_map"]
        return {str(tensor): index.parent / Path(file).name for tensor, file in entries.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"{index} is not an index of weights: copy it again") from error


def read_weight_file(path: Path) -> Tensors:
    """All tensors of one file, memory-mapped; raises NotFound, BadInput."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}, where weights should be: copy the folder again")
    return (
        tensor_file.read_tensors(path, WEIGHT) if path.suffix == ".safetensors" else torch_file.read_torch_tensors(path)
    )


def find_file(files: Files, name: str, folder: Path) -> Path:
    """The file that holds a tensor; raises BadInput with the names that there are."""
    if name not in files:
        likely = sorted(files, key=lambda x: (not has_module(x, OUTPUT_MODULES + EMBEDDING_MODULES), x))
        raise BadInput(f"{folder} has no tensor '{name}', only {join_names(likely)}: name one of them")
    return files[name]


def find_output_weight(folder: Path, files: Files, config: Any) -> str:
    """The name of the output layer's weight, or of tied embeddings; raises BadInput where it is not clear."""
    refuse_changes(folder, [name for name in files if is_inside(name, OUTPUT_MODULES)])
    outputs = [name for name in files if has_module(name, OUTPUT_MODULES) or name in LONE_OUTPUTS]
    names = outputs or find_tied(folder, files, config)
    if len(names) != 1:
        problem = f"{len(names)} possible output layers, {join_names(names)}" if names else "no output layer"
        raise BadInput(f"{folder} has {problem}: choose by --tensor among {join_names(names or sort_likely(files))}")
    refuse_changes(folder, [name for name in files if name.startswith(names[0].removesuffix(WEIGHT))])
    return names[0]


def is_inside(name: str, modules: Sequence[str]) -> bool:
    """Whether a tensor is of one of these modules, or of a part of it, and of none of many layers."""
    words = name.split(".")[:-1]
    return not any(word.isdigit() for word in words) and any(
        ends_with(".".join(words[:count]), modules) for count in range(1, len(words) + 1)
    )


def find_tied(folder: Path, files: Files, config: Any) -> list[str]:
    """The names of embeddings that the output layer is tied to; raises BadInput where the model has no such layer."""
    if classifiers := [name for name in files if has_module(name, CLASSIFIER_MODULES)]:
        raise BadInput(f"{folder} is a classifier: choose its weight by --tensor {join_names(classifiers)}")
    embeddings = [name for name in files if has_module(name, EMBEDDING_MODULES)]
    for kind in getattr(config, "architectures", None) or ():
        if CLASSES_WITHOUT_OUTPUT.search(kind):
            raise BadInput(
                f"{folder} is a {kind}, which has no output layer: choose a weight by --tensor, such as "
                f"{join_names(embeddings or sort_likely(files))}"
            )
    if not any(getattr(x, "tie_word_embeddings", False) for x in (config, config.get_text_config())):
        raise BadInput(
            f"{folder} has no lm_head.weight and does not tie it to the embeddings: copy all weights, or choose by "
            f"--tensor among {join_names(sort_likely(files))}"
        )
    return embeddings


def sort_likely(files: Files) -> list[str]:
    """Names for a message: weights before others, those of one layer before those of many."""
    return sorted(files, key=lambda x: (not x.endswith(WEIGHT), any(part.isdigit() for part in x.split(".")), x))


def refuse_changes(folder: Path, names: list[str]) -> None:
    """Raise BadInput where one of the tensors of an output layer says that its weight, if any, is not the whole of it.

    Others than weight and bias scale what was quantised; an adapter's add to it.
    """
    for name in sorted(names):
        words = name.split(".")
        if words[-1] not in (WEIGHT, BIAS) or set(words) & set(ADAPTER_MODULES):
            raise BadInput(
                f"{folder} holds {name}, so its output layer is quantised or adapted: save it dequantised or with the "
                "adapter merged, or choose a plain matrix by --tensor"
            )


def add_bias(layer: Layer, files: Files, chosen_name: str | None, folder: Path) -> Layer:
    """`layer` with the bias [V] or [1, V] of the name chosen, of that beside it, or of one that output layers' have.

    What is beside the weight by its name may be in another of the files. Raises BadInput.
    """
    name = chosen_name or find_bias(layer, files, folder)
    if name is None:
        return layer
    tensors = read_weight_file(find_file(files, name, folder))
    return replace(layer, bias=tensors.require_tensor(name), bias_name=name)


def find_bias(layer: Layer, files: Files, folder: Path) -> str | None:
    """The name of the bias beside the weight, else of an output layer's, that nearest to the weight by its name."""
    if layer.bias_name in files:
        return layer.bias_name
    if has_module(layer.weight_name, CLASSIFIER_MODULES):
        return None
    for end in BIAS_NAMES:
        names = [name for name in files if ends_with(name, (end,))]
        nearness = [count_shared_words(name, layer.weight_name) for name in names]
        nearest = [name for name, near in zip(names, nearness, strict=True) if near == max(nearness)]
        if len(nearest) > 1:
            raise BadInput(f"{folder} has {len(nearest)} biases: choose by --bias-tensor among {join_names(nearest)}")
        if nearest:
            return nearest[0]
    return next((name for name in LONE_BIASES if name in files), None)


def count_shared_words(name: str, other: str) -> int:
    """How many words two names of tensors begin with alike."""
    pairs = zip(name.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def read_logit_scale(config: Any) -> float:
    """The factor of the logits: a setting's name says whether it multiplies or divides."""
    text = config.get_text_config()
    if text.model_type in SCALES_BEFORE_LAYER:
        return 1.0
    divisors = read_factors(text, (DIVIDING_SETTING,))
    if divisors:
        return divisors[0] if text.model_type.startswith(MULTIPLYING_FAMILY) else 1 / divisors[0]
    return next(iter(read_factors(text, [name for name in LOGIT_SCALE_SETTINGS if name != DIVIDING_SETTING])), 1.0)


def find_padding(folder: Path, classes: int) -> Ids:
    """Ids of rows without a token, as `capture` marks them; none where there is no tokenizer. Raises BadInput."""
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return no_ids()
    return find_unnamed_ids(load_tokenizer(folder), classes, folder)


def find_unnamed_ids(tokenizer: Any, classes: int, source: Path) -> Ids:
    """The ids below `classes` that the tokenizer has no token for; raises BadInput where it has some above."""
    ids = np.fromiter(tokenizer.get_vocab().values(), np.int64)
    if ids.size and ids.max() >= classes:
        raise BadInput(
            f"the tokenizer of {source} has token {ids.max()} but the output layer {classes} rows: "
            "take both from the same model"
        )
    return np.setdiff1d(np.arange(classes), ids)
