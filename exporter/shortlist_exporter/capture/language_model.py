"""A local causal language model as hidden states and an output layer. Never touches the network."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from shortlist.core.extras import require
from shortlist.errors import BadInput, NotFound, ShortlistError

from shortlist_exporter.inputs.formats.hugging_face import find_reason, refuse_adapter
from shortlist_exporter.inputs.formats.model_settings import LOGIT_SCALE_SETTINGS, SOFT_CAP_SETTINGS, read_factors
from shortlist_exporter.inputs.sources import Dense

LOGIT_TOLERANCE = 1e-4  # share of the largest logit by which the layer read may differ from the model's own


class ReachedError(Exception):
    """Raised to end a forward pass at the output layer, whose product is not needed."""


@dataclass(frozen=True)
class LanguageModel:
    """model and tokenizer of transformers, and the output layer read from them."""

    model: Any
    tokenizer: Any
    dense: Dense
    source: Path

    @property
    def prefix(self) -> list[int]:
        """The token that every window must begin with, where the tokenizer puts one: its beginning of sequence."""
        begin = self.tokenizer.bos_token_id
        return [begin] if begin is not None and self.tokenizer("a")["input_ids"][:1] == [begin] else []

    @property
    def max_window(self) -> int | None:
        """The longest window in tokens, or None where the model sets no limit."""
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return None if limit is None else int(limit) - len(self.prefix)

    def hidden_states(self, windows: torch.Tensor) -> torch.Tensor:
        """Token ids [b, t] -> the output layer's inputs [b, t, d] float32: states after the final norm."""
        prefix = torch.tensor(self.prefix, dtype=torch.int64).expand(len(windows), -1)
        return catch_output_inputs(self.model, torch.cat([prefix, windows], dim=1))[:, prefix.shape[1] :]

    @property
    def ends(self) -> list[int]:
        """The tokens that end a text, as tokenizer and model name them."""
        settings = (self.tokenizer.eos_token_id, self.model.config.get_text_config().eos_token_id)
        return sorted({int(token) for named in settings if named is not None for token in np.atleast_1d(named)})

    def read_on(self, tokens: torch.Tensor, cache: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Token ids [b, t] that follow those in `cache` (None: nothing) -> what the last of them gives.

        That is the output layer's inputs [b, d] and the logits [b, V], float32, and the cache to go on with.
        Raises BadInput where the model keeps none.
        """
        inputs: list[torch.Tensor] = []
        layer = self.model.get_output_embeddings()
        handle = layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
        try:
            with torch.inference_mode():
                output = self.model(tokens, past_key_values=cache, use_cache=True)
        finally:
            handle.remove()
        cache = getattr(output, "past_key_values", None)
        if cache is None:
            raise BadInput(f"{type(self.model).__name__} cannot go on from what it read: give --text")
        return inputs[0][:, -1].float(), output.logits[:, -1].float(), cache

    def make_labels(self) -> list[str]:
        """V printable names; empty for padding."""
        names = self.tokenizer.convert_ids_to_tokens(range(self.dense.classes))
        padded = set(self.dense.padded.tolist())
        return ["" if i in padded else self.make_label(i, name) for i, name in enumerate(names)]

    def make_label(self, index: int, name: str) -> str:
        """The token as it prints, with its leading space; its raw name where it is only a part of a character."""
        if name.startswith("\N{LOWER ONE EIGHTH BLOCK}"):  # SentencePiece's space, which decoding would strip
            return name.replace("\N{LOWER ONE EIGHTH BLOCK}", " ")
        text = str(self.tokenizer.decode([index]))
        return name if "\N{REPLACEMENT CHARACTER}" in text else text


def load_model(path: Path) -> LanguageModel:
    """Load a Hugging Face folder (safetensors) or a GGUF file; raises NotFound, BadInput, MissingExtra."""
    if not path.exists():
        raise NotFound(f"there is no model at {path}: give a Hugging Face folder or a GGUF file")
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = require("transformers", "capture")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder, options = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
    if options:
        require("gguf", "capture")
        require("accelerate", "capture")
        hide_bar(require("transformers.modeling_gguf_pytorch_utils", "capture"))
    try:
        tokenizer, model = load_both(transformers, folder, options)
    except ShortlistError:
        raise
    except Exception as error:  # settings that contradict one another raise the base class alone
        raise BadInput(
            f"{path} cannot be loaded as a causal language model ({find_reason(error)}): "
            "give a whole Hugging Face folder with safetensors, or a GGUF file"
        ) from error
    language_model = LanguageModel(model, tokenizer, read_output_layer(model, tokenizer), path)
    check_layer(language_model)
    return language_model


def hide_bar(reader: Any) -> None:
    """Hide the bar of transformers' GGUF reader, which ignores settings once torch has imported tqdm."""
    reader.tqdm = partial(reader.tqdm, disable=True)


def load_both(transformers: Any, folder: Path, options: dict[str, str]) -> tuple[Any, Any]:
    """The tokenizer, and the model in float32; raises BadInput where weights are missing."""
    local = {"local_files_only": True, "trust_remote_code": False} | options  # unset, transformers would ask
    refuse_adapter(folder)
    if not options and not (folder / "config.json").is_file():
        raise BadInput(f"{folder} has no config.json: give a Hugging Face folder, or a GGUF file by its own name")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, **require_safetensors(options), **local
    )
    # transformers fills what is missing with random numbers, and says so only in a log
    if missing_weights := sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]])):
        raise BadInput(
            f"{folder} lacks {len(missing_weights)} weights of the model, such as {missing_weights[0]}: copy it again"
        )
    refuse_ignored(folder, model, info["unexpected_keys"])
    return tokenizer, model.eval()


def refuse_ignored(folder: Path, model: Any, keys: Iterable[str]) -> None:
    """Raise BadInput where tensors that were left out belong to a layer that was read: its scales, or an adapter's.

    transformers says so only in a log. A bias that the model does not have is left out, as transformers does.
    """
    layers = {name for name, module in model.named_modules() if getattr(module, "weight", None) is not None}
    for key in sorted(map(str, keys)):
        words = key.split(".")
        if words[-1] != "bias" and layers & {".".join(words[:end]) for end in range(1, len(words))}:
            raise BadInput(
                f"{folder} holds {key}, which the model would be computed without: save it dequantised, or with its "
                "adapter merged"
            )


def require_safetensors(options: dict[str, str]) -> dict[str, bool]:
    """The option that loads only safetensors from a folder, never a pickle."""
    return {} if options else {"use_safetensors": True}


def catch_output_inputs(model: Any, tokens: torch.Tensor, cache: Any = None) -> torch.Tensor:
    """Token ids [b, t] -> [b, t, d] float32, taken where they enter the output layer; raises BadInput.

    cache: of keys and values of the tokens before, to which those of `tokens` are added; None where none come before.
    """
    inputs_by_call: list[torch.Tensor] = []

    def catch(_: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        inputs_by_call.append(inputs[0])
        raise ReachedError

    handle = model.get_output_embeddings().register_forward_pre_hook(catch)
    try:
        with torch.inference_mode():
            model(tokens, past_key_values=cache, use_cache=cache is not None)
    except ReachedError:
        return inputs_by_call[0].float()
    finally:
        handle.remove()
    raise BadInput(f"{type(model).__name__} never calls its output layer: export its weights and contexts by hand")


def read_output_layer(model: Any, tokenizer: Any) -> Dense:
    """The dense layer with its scale, soft-cap and padding; raises BadInput when the model has none."""
    layer = model.get_output_embeddings()
    if getattr(layer, "weight", None) is None:
        raise BadInput(f"{type(model).__name__} has no output layer: give a causal language model")
    weight = layer.weight.detach().float().numpy()
    bias = getattr(layer, "bias", None)
    named_ids = np.fromiter(tokenizer.get_vocab().values(), np.int64)
    raw = Dense(
        np.ascontiguousarray(weight),
        None if bias is None else bias.detach().float().numpy(),
        padded=np.setdiff1d(np.arange(len(weight)), named_ids),
    )
    return match_settings(raw, model)


def match_settings(raw: Dense, model: Any) -> Dense:
    """Find the scale and soft-cap of the model's settings with which `raw` reproduces its own logits; raises BadInput.

    The settings' names do not say whether they multiply or divide, so each is tried.
    """
    states, logits = compute_own_logits(model, len(raw.weight))
    for scale, cap in list_settings(model.config.get_text_config()):
        # padding is left out here: the model computes logits for those rows too
        dense = Dense(raw.weight, raw.bias, scale, cap)
        if measure_difference(dense, states, logits) <= LOGIT_TOLERANCE:
            return Dense(raw.weight, raw.bias, scale, cap, raw.padded)
    raise BadInput(
        f"the output layer of {type(model).__name__} is not weight, bias, scale and soft-cap alone: "
        "export its weights and contexts by hand"
    )


def compute_own_logits(model: Any, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states [t, d] of a few tokens, and the logits [t, V] that the model computes of them."""
    tokens = torch.arange(min(8, classes)).reshape(1, -1)
    with torch.inference_mode():
        logits = model(tokens, use_cache=False).logits.float()[0]
    return catch_output_inputs(model, tokens)[0], logits


def list_settings(config: Any) -> Iterator[tuple[float, float | None]]:
    """Pairs of logit scale and soft-cap to try, what the config names first."""
    scales, caps = read_factors(config, LOGIT_SCALE_SETTINGS), read_factors(config, SOFT_CAP_SETTINGS)
    return product([*scales, *(1 / x for x in scales), 1.0], [*caps, None])


def measure_difference(dense: Dense, states: torch.Tensor, model_logits: torch.Tensor) -> float:
    """Largest difference of logits [t, V], as a share of the largest of `expected`; infinite where one is NaN."""
    logits = dense.module.logits(states)
    share = (logits - model_logits).abs().max() / model_logits.abs().max().clamp_min(1e-30)
    return float(share.nan_to_num(nan=torch.inf))


def check_layer(language_model: LanguageModel) -> None:
    """Raise BadInput unless every token that the tokenizer can give is a row of the layer."""
    largest = max(language_model.tokenizer.get_vocab().values())
    if largest >= language_model.dense.classes:
        raise BadInput(
            f"the tokenizer of {language_model.source} has token {largest} but the output layer "
            f"{language_model.dense.classes} rows: take both from the same model"
        )
