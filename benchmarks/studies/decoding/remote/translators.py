"""CTranslate2 and sacrebleu, each in answer to a JSON file; runs in their own environment.

python translators.py convert|translate|bleu QUESTION.json ANSWER.json
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def convert(question: dict[str, Any]) -> dict[str, Any]:
    """A Marian model, with its vocabularies and a mapping of words, as CTranslate2's; `out` is its folder."""
    from ctranslate2.converters import MarianConverter  # type: ignore[import-not-found]

    converter = MarianConverter(question["model"], question["vocabularies"])
    converter.convert(question["out"], vmap=question["vmap"], force=True)
    return {}


def translate(question: dict[str, Any]) -> dict[str, Any]:
    """Words, scores and seconds of the best translations of tokenised `sentences`."""
    import ctranslate2  # type: ignore[import-not-found]

    translator = ctranslate2.Translator(question["folder"], device="cpu", intra_threads=1, compute_type="float32")
    options = {name: question[name] for name in ("beam_size", "max_decoding_length", "use_vmap")}
    translator.translate_batch(question["sentences"][:8], **options)
    start = time.perf_counter()
    found = translator.translate_batch(question["sentences"], return_scores=True, **options)
    seconds = time.perf_counter() - start
    return {
        "words": [each.hypotheses[0] for each in found],
        "scores": [each.scores[0] for each in found],
        "seconds": seconds,
    }


def bleu(question: dict[str, Any]) -> dict[str, Any]:
    """BLEU of each system over the words as they are, and for all but the first a paired bootstrap against it."""
    from sacrebleu.metrics import BLEU  # type: ignore[import-not-found]
    from sacrebleu.significance import PairedTest  # type: ignore[import-not-found]

    names, references = list(question["systems"]), [question["references"]]
    metric = BLEU(tokenize="none", force=True)
    scores = {name: metric.corpus_score(lines, references).score for name, lines in question["systems"].items()}
    test = PairedTest(
        [(name, question["systems"][name]) for name in names],
        {"BLEU": BLEU(tokenize="none", force=True)},
        references,
        test_type="bs",
        n_samples=1000,
    )
    results = test()[1]["BLEU"]
    intervals = {name: [one.mean, one.ci, one.p_value] for name, one in zip(names, results, strict=True)}
    return {"bleu": scores, "bootstrap": intervals, "signature": str(metric.get_signature())}


if __name__ == "__main__":
    command, question, answer = sys.argv[1:]
    actions = {"convert": convert, "translate": translate, "bleu": bleu}
    result = actions[command](json.loads(Path(question).read_text("utf-8")))
    Path(answer).write_text(json.dumps(result), "utf-8")
