"""`ptb`: Penn Treebank through a 2 x 200 LSTM. Contexts are the top layer's outputs, targets the next words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from shortlist.bundle.files import sha256
from shortlist.errors import NotFound
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.inputs.sources import Contexts, Dense, load_contexts

from benchmarks.common.truth import load_truth

from .base import DataSet, Place

PTB_DIM = 200
STREAMS = 10  # read side by side, as the base model's perplexity was measured
STEP_WORDS = 500  # words run at once
FIT_WORDS = 310_000  # a third of train


def load(place: Place) -> DataSet:
    """Fit on the first third of train (all of it with `words=929589`), test on the whole of test."""
    folder = find_base_model(place.data)
    words = int((place.options or {}).get("words", FIT_WORDS))
    cache = place.cache / "ptb"
    cache.mkdir(parents=True, exist_ok=True)
    dense = load_layer(folder)
    fit = load_states(folder, "train", words, cache / f"train-{words}.safetensors")
    test = load_states(folder, "test", None, cache / "test.safetensors")
    return DataSet("ptb", dense, fit, load_truth(cache / "exact.safetensors", dense, test.contexts, test.targets))


def find_base_model(data: Path | None) -> Path:
    """The folder `ptb` of the data folder; raises NotFound where there is none."""
    if data is None or not (data / "ptb" / "lstm200.safetensors").is_file():
        raise NotFound("data set ptb needs --data (or DATA), a folder with ptb/lstm200.safetensors and ptb/*.npy")
    return data / "ptb"


def load_layer(folder: Path) -> Dense:
    """The base model's output layer, [10000, 200] and its bias."""
    path = folder / "lstm200.safetensors"
    tensors = load_file(path)
    return Dense(tensors["out.weight"].numpy(), tensors["out.bias"].numpy(), sha256=sha256(path))


def load_states(folder: Path, split: str, words: int | None, out: Path) -> Contexts:
    """Contexts and targets of one split, kept in `out`."""
    if not out.is_file():
        ids = torch.from_numpy(np.load(folder / f"{split}.npy")[:words].astype(np.int64))
        contexts, targets = run_lstm(load_file(folder / "lstm200.safetensors"), ids, split)
        save_file({"contexts": contexts, "targets": targets}, out)
    return load_contexts(out)


def run_lstm(tensors: dict[str, torch.Tensor], ids: torch.Tensor, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """[n] word ids -> contexts [m, 200] and next words [m], stream by stream, the state carried over."""
    lstm = torch.nn.LSTM(PTB_DIM, PTB_DIM, 2)
    lstm.load_state_dict({key.removeprefix("lstm."): value for key, value in tensors.items() if "lstm." in key})
    length = len(ids) // STREAMS
    words = ids[: length * STREAMS].reshape(STREAMS, length).T
    parts, state = [], None
    with torch.inference_mode(), progress_bar(f"contexts of {name}") as report:
        for start in range(0, length - 1, STEP_WORDS):
            inputs = words[start : min(start + STEP_WORDS, length - 1)]
            output, state = lstm(tensors["emb.weight"][inputs], state)
            parts.append(output)
            report(f"contexts of {name}", start + len(inputs), length - 1)
    contexts = torch.cat(parts).permute(1, 0, 2).reshape(-1, PTB_DIM).contiguous()
    return contexts, words[1:].T.reshape(-1).contiguous()
