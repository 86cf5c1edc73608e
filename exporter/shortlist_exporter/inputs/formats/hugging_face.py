"""The output layer of a local Hugging Face folder. The model itself is neither built nor loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from shortlist.core.extras import require
from shortlist.errors import BadInput, NotFound

from . import tensor_file, torch_file
from .base import BIAS, WEIGHT, Choice, Ids, Layer, Tensors, join_names, make_layer, no_ids
from .model_settings import LOGIT_SCALE_SETTINGS, SOFT_CAP_SETTINGS, read_factors

MAX_REASON_CHARACTERS = 200
INDEX_FILES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
OUTPUT_MODULES = ("lm_head", "embed_out")  # a weight's name without its last word, and without what stands before
EMBEDDING_MODULES = (
    "embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in", "embeddings", "embedding", "shared",
)  # fmt: skip
BIAS_NAMES = (
    "lm_head.bias", "embed_out.bias", "final_logits_bias", "cls.predictions.bias", "predictions.bias",
    "vocab_projector.bias", "generator_lm_head.bias", "pred_layer.proj.bias", "decoder.bias",
)  # fmt: skip
ADAPTER_FILE = "adapter_config.json"  # of a folder of peft
ADAPTER_MODULES = ("base_layer", "original_module", "modules_to_save", "lora_A", "lora_B")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
# `logits_scaling` divides, but for this family; every other scale multiplies.
DIVIDING_SETTING, MULTIPLYING_FAMILY = "logits_scaling", "hyperclovax"

Files = Mapping[str, Path]


def read_folder_layer(path: Path, choice: Choice) -> Layer:
    """Read `lm_head.weight`, the embeddings where they are tied to it, or the tensor chosen; raises NotFound, BadInput.

    Scale and soft-cap are those of the settings. Padded are the rows that the folder's tokenizer gives no token.
    """
    config, files = load_config(path), map_weight_files(path)
    name = choice.weight or find_output_weight(path, files, config)
    tensors = read_weight_file(find_file(files, name, path))
    layer = add_bias(make_layer(tensors, name, None), files, choice.bias, path)
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
    if not (folder / "config.json").is_file():
        refuse_adapter(folder)
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
            f"{folder} holds an adapter alone: merge it into its model by peft's merge_and_unload(), and give the "
            "folder that save_pretrained() writes then"
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
        likely = sorted(files, key=lambda x: (module_name(x) not in OUTPUT_MODULES + EMBEDDING_MODULES, x))
        raise BadInput(f"{folder} has no tensor '{name}', only {join_names(likely)}: name one of them")
    return files[name]


def module_name(name: str) -> str:
    """The name of the module that holds a weight: `lm_head` of `model.lm_head.weight`."""
    parts = name.split(".")
    return parts[-2] if len(parts) > 1 and parts[-1] == WEIGHT else ""


def find_output_weight(folder: Path, files: Files, config: Any) -> str:
    """The name of the output layer's weight, or of tied embeddings; raises BadInput where it is not clear."""
    refuse_changes(folder, [name for name in files if set(name.split(".")[:-1]) & set(OUTPUT_MODULES)])
    outputs = [name for name in files if module_name(name) in OUTPUT_MODULES]
    ties_embeddings = any(getattr(x, "tie_word_embeddings", False) for x in (config, config.get_text_config()))
    if not outputs and not ties_embeddings:
        others = sorted(files, key=lambda x: (not module_name(x), any(part.isdigit() for part in x.split(".")), x))
        raise BadInput(
            f"{folder} has no lm_head.weight and does not tie it to the embeddings: copy all weights, or choose by "
            f"--tensor among {join_names(others)}"
        )
    names = outputs or [name for name in files if module_name(name) in EMBEDDING_MODULES]
    if len(names) != 1:
        problem = f"{len(names)} possible output layers, {join_names(names)}" if names else "no output layer"
        raise BadInput(f"{folder} has {problem}: choose by --tensor among {join_names(names or sorted(files))}")
    refuse_changes(folder, [name for name in files if name.startswith(names[0].removesuffix(WEIGHT))])
    return names[0]


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

    What is beside the weight by its name may be in another of the files.
    """
    name = chosen_name or next((x for x in (layer.bias_name, *BIAS_NAMES) if x in files), None)
    if name is None:
        return layer
    tensors = read_weight_file(find_file(files, name, folder))
    bias = tensors.require_tensor(name)
    return replace(layer, bias=bias[0] if bias.ndim == 2 and len(bias) == 1 else bias, bias_name=name)


def read_logit_scale(config: Any) -> float:
    """The factor of the logits: a setting's name says whether it multiplies or divides."""
    text = config.get_text_config()
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
