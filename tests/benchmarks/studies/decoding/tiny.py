"""A tiny translator in the files of the study, which is then not trained."""

import numpy as np

from benchmarks.studies.decoding.study import Study
from benchmarks.studies.decoding.task import MODEL, SOURCE_WORDS, TARGET_WORDS, Task, open_task
from examples.translate.corpus import Vocabulary
from examples.translate.model import Shape, Transformer

WORDS = Vocabulary(["</s>", "<unk>", *(f"w{number}" for number in range(598))])
RANDOM = np.random.default_rng(0)
SIZES = {"train": 40, "dev": 6, "test": 10}


def make_task(folder) -> Task:
    """Texts of random words, and a model of random weights that ends sentences now and then."""
    texts = folder / "data" / "enja"
    texts.mkdir(parents=True)
    for split, size in SIZES.items():
        for language in ("en", "ja"):
            lines = [" ".join(RANDOM.choice(WORDS.words[2:], RANDOM.integers(2, 6))) for _ in range(size)]
            (texts / f"{split}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
    model = Transformer(Shape(len(WORDS.words), len(WORDS.words), dim=16, inner=32, heads=2, layers=1)).eval()
    model["decoder_ff_logit_out_W"].detach().numpy()[:] = RANDOM.standard_normal((16, len(WORDS.words))) * 0.7
    model["decoder_ff_logit_out_b"].detach()[0] = 1.0
    (folder / "model").mkdir()
    model.save_marian(folder / "model" / MODEL)
    for name in (SOURCE_WORDS, TARGET_WORDS):
        WORDS.save(folder / "model" / name)
    return open_task(folder / "data", folder / "model", 1)


def make_study(folder) -> Study:
    """The study of a tiny task, whose sentences are half for fitting."""
    return Study(make_task(folder), folder, fitted=SIZES["train"] // 2, tuning=SIZES["train"] // 2)
