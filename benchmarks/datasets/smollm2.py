"""`smollm2`: hidden states of SmolLM2-135M over WikiText-2, or, without DATA, over the shipped novel by chapter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from shortlist.errors import NotFound
from shortlist_exporter.capture.files import write_head
from shortlist_exporter.capture.language_model import load_model
from shortlist_exporter.capture.packaged_model import find_packaged_model
from shortlist_exporter.capture.run import capture
from shortlist_exporter.capture.texts import Text
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.inputs.sources import Contexts, load_contexts, load_dense
from shortlist_models.progress import Progress

from benchmarks.common.truth import load_truth

from .base import DataSet, Place

NOVEL_FILE = Path("examples/text/persuasion.txt")
TEST_ROWS = 24_576  # tokens of the test text, whole windows


def find_wikitext(data: Path) -> tuple[list[Path], list[Path]]:
    """Fit text and test text of a data folder; raises NotFound."""
    fit, test = (data / "wikitext-2" / f"{part}.txt" for part in ("valid", "test"))
    if not fit.is_file() or not test.is_file():
        raise NotFound(f"{data} has no wikitext-2/valid.txt and test.txt: give --data the folder above wikitext-2")
    return [fit], [test]


def load(place: Place) -> DataSet:
    """Fit on WikiText-2 valid, test on WikiText-2 test; or both from the shipped text, the last chapters held out."""
    uses_novel = place.data is None
    folder = place.cache / (NOVEL_FILE.stem if uses_novel else "wikitext-2")
    head, fit, test = (folder / f"{part}.safetensors" for part in ("head", "fit", "test"))
    fit_text, test_text = ([NOVEL_FILE], []) if place.data is None else find_wikitext(place.data)
    texts = {fit: fit_text} if uses_novel else {fit: fit_text, test: test_text}
    if not all(path.is_file() for path in (head, *texts)):
        capture_all(place.model or find_packaged_model(), head, texts, test)
    dense, contexts = load_dense(head), load_contexts(fit)
    contexts, held_out = split_last_chapters(contexts) if uses_novel else (contexts, load_contexts(test))
    name = f"smollm2, shipped text ({NOVEL_FILE.name})" if uses_novel else "smollm2, WikiText-2"
    return DataSet(
        name, dense, contexts, load_truth(folder / "exact.safetensors", dense, held_out.contexts, held_out.targets)
    )


def capture_all(model: Path, head: Path, texts: dict[Path, list[Path]], test: Path) -> None:
    """Run the model over the texts, with a bar for each."""
    head.parent.mkdir(parents=True, exist_ok=True)
    with progress_bar(f"loading {model.name}") as report:
        language_model = load_model(model)
        write_head(head, language_model.dense, model.name)
        for out, paths in texts.items():
            if out.is_file():
                continue
            rows = TEST_ROWS if out == test else None
            stage_report = name_stage(report, f"contexts to {out.stem}")
            capture(language_model, [Text(path) for path in paths], out, rows=rows, progress=stage_report)


def name_stage(report: Progress, stage: str) -> Progress:
    """The same report, with another name for every stage."""
    return lambda _, done, total: report(stage, done, total)


def split_last_chapters(contexts: Contexts) -> tuple[Contexts, Contexts]:
    """Split by document: the last quarter or so is held out."""
    documents = contexts.documents
    assert documents is not None
    fit = documents < documents[len(documents) * 3 // 4]
    return select_rows(contexts, fit), select_rows(contexts, ~fit)


def select_rows(contexts: Contexts, rows: npt.NDArray[np.bool_]) -> Contexts:
    targets, documents = contexts.targets, contexts.documents
    return Contexts(
        contexts.contexts[rows],
        None if targets is None else targets[rows],
        None if documents is None else documents[rows],
        contexts.sha256,
    )
