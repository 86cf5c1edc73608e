"""What models call their output layer and its bias, and their settings of logit scale and soft-cap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Ends of the names of output weights' modules, and of classifiers'; whole words of names.
OUTPUT_MODULES = ("lm_head", "embed_out", "decoder.output_projection", "lm_head.decoder", "predictions.decoder")
LONE_OUTPUTS = ("proj_out.weight", "output_projection.weight", "lm_loss.weight")  # whole names: parts have such, too
CLASSIFIER_MODULES = ("classifier", "classifier.out_proj", "classification_head.out_proj", "score", "qa_outputs")
EMBEDDING_MODULES = (
    "embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in", "embeddings", "embedding", "shared",
)  # fmt: skip
BIAS_NAMES = (  # ends of names, the likeliest first
    "lm_head.bias", "embed_out.bias", "final_logits_bias", "predictions.bias", "vocab_projector.bias",
    "generator_lm_head.bias", "pred_layer.proj.bias", "lm_head.decoder.bias", "predictions.decoder.bias",
)  # fmt: skip
LONE_BIASES = ("decoder.bias", "proj_out.bias")  # whole names
# Some multiply the logits, some divide.
LOGIT_SCALE_SETTINGS = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")
SOFT_CAP_SETTINGS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


def read_factors(config: Any, names: Sequence[str]) -> list[float]:
    """The settings of these names that are numbers logits can be scaled or capped with."""
    values = [getattr(config, name, None) for name in names]
    return [float(x) for x in values if isinstance(x, int | float) and 0 < x < float("inf")]


def has_module(name: str, modules: Sequence[str]) -> bool:
    """Whether a weight is that of one of these modules, of none of many layers: `model.lm_head.weight` of `lm_head`."""
    module, _, kind = name.rpartition(".")
    is_numbered = any(word.isdigit() for word in module.split("."))
    return kind == "weight" and not is_numbered and ends_with(module, modules)


def ends_with(name: str, ends: Sequence[str]) -> bool:
    """Whether a name ends in one of these, by whole words."""
    return f".{name}".endswith(tuple(f".{end}" for end in ends))
