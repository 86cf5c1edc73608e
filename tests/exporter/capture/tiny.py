"""Random language models of two layers in a Hugging Face folder, with a tokenizer of one word a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = 40
SIZES = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip


def save_model(
    folder: Path, config_class: Any = LlamaConfig, model_class: Any = LlamaForCausalLM, **config: Any
) -> Any:
    """A model whose logits are not all near zero, saved as safetensors; V = WORDS unless `config` says more."""
    torch.manual_seed(0)
    model = model_class(config_class(**{"vocab_size": WORDS} | SIZES | config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.5)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return model


def save_tokenizer(folder: Path, *, begin: bool = False, count: int = WORDS) -> None:
    """Words `w1` to `w39`, or to another count, and `<s>`, id 0, which stands before every text where `begin`."""
    vocabulary = {"<s>": 0} | {f"w{i}": i for i in range(1, count)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>").save_pretrained(folder)


def words(count: int, seed: int = 0) -> str:
    """A text of `count` tokens."""
    return " ".join(f"w{i}" for i in np.random.default_rng(seed).integers(1, WORDS, count))


def write_text(path: Path, *, documents: int = 3, length: int = 40) -> Path:
    """Documents under WikiText headings; a heading's three words are tokens too."""
    path.write_text("".join(f" = w{i + 2} = \n{words(length, i)}\n" for i in range(documents)), "utf-8")
    return path


def list_hidden_files(folder: Path) -> list[str]:
    """Names of what was left behind in a folder while a file was being written."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


class StopCapture(Exception):
    """Stands for a killed process."""


def stop_after(rows: int) -> Any:
    """A progress callback that ends the capture after so many rows."""

    def progress(stage: str, done: int, total: int) -> None:
        if done >= rows:
            raise StopCapture

    return progress
