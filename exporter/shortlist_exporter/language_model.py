"""A local causal language model, seen as hidden states and an output layer. Never touches the network."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from shortlist.errors import BadInput, NotFound
from shortlist.extras import require

from .methods.base import torch_dense
from .sources import Dense

TOLERANCE = 1e-3  # of the largest logit: what the layer read here may differ from the model's own


@dataclass(frozen=True)
class LanguageModel:
    """model and tokenizer of transformers, and the output layer read from them."""

    model: Any
    tokenizer: Any
    dense: Dense
    source: Path

    def hidden_states(self, windows: torch.Tensor) -> torch.Tensor:
        """Token ids [b, t] -> the output layer's inputs [b, t, d] float32: states after the final norm."""
        with torch.inference_mode():
            states: torch.Tensor = self.model.base_model(windows, use_cache=False).last_hidden_state
        return states.float()

    def labels(self) -> list[str]:
        """V printable names; empty for padding."""
        real = len(self.tokenizer)
        return [self.tokenizer.decode([i]) if i < real else "" for i in range(self.dense.classes)]


def load_model(path: Path) -> LanguageModel:
    """A Hugging Face folder (safetensors) or a GGUF file; raises NotFound, BadInput, MissingExtra."""
    if not path.exists():
        raise NotFound(f"there is no model at {path}: give a Hugging Face folder or a GGUF file")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    transformers = require("transformers", "capture")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder, options = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
    if options:
        require("gguf", "capture")
        require("accelerate", "capture")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, **safe_weights(options), **options
        ).eval()
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise BadInput(f"{path} cannot be loaded as a causal language model ({reason})") from error
    loaded = LanguageModel(model, tokenizer, output_layer(model, len(tokenizer)), path)
    check_layer(loaded)
    return loaded


def safe_weights(options: dict[str, str]) -> dict[str, bool]:
    """Only safetensors from a folder: never a pickle."""
    return {} if options else {"use_safetensors": True}


def output_layer(model: Any, vocabulary: int) -> Dense:
    """The dense layer with its scale, soft-cap and padding; raises BadInput when the model has none."""
    layer = model.get_output_embeddings()
    if layer is None:
        raise BadInput(f"{type(model).__name__} has no output layer: give a causal language model")
    weight = layer.weight.detach().float().numpy()
    bias = getattr(layer, "bias", None)
    return Dense(
        np.ascontiguousarray(weight),
        None if bias is None else bias.detach().float().numpy(),
        logit_scale=logit_scale(model.config),
        soft_cap=getattr(model.config, "final_logit_softcapping", None),
        padded=np.arange(vocabulary, len(weight), dtype=np.int64),
    )


def logit_scale(config: Any) -> float:
    """What logits are multiplied with: Cohere's `logit_scale`, or the inverse of Granite's `logits_scaling`."""
    if getattr(config, "logit_scale", None):
        return float(config.logit_scale)
    if getattr(config, "logits_scaling", None):
        return 1.0 / float(config.logits_scaling)
    return 1.0


def check_layer(loaded: LanguageModel) -> None:
    """Raise BadInput unless the layer applied to hidden states gives the model's own logits."""
    real = loaded.dense.classes - loaded.dense.padded.size
    windows = torch.arange(min(8, real)).reshape(1, -1)
    with torch.inference_mode():
        expected = loaded.model(windows, use_cache=False).logits.float()[0, :, :real]
    found = torch_dense(loaded.dense).logits(loaded.hidden_states(windows)[0])[:, :real]
    if (found - expected).abs().max() > TOLERANCE * max(1.0, float(expected.abs().max())):
        raise BadInput(
            f"the output layer of {type(loaded.model).__name__} is not weight, bias, scale and soft-cap alone: "
            "export its weights and contexts by hand"
        )
