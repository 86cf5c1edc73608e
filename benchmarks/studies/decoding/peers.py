"""CTranslate2 on the same model, and sacrebleu: both run in an environment of their own."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from shortlist.errors import BadInput

from .searches import MAX_LENGTH
from .task import MODEL, SOURCE_WORDS, TARGET_WORDS, Task

SCRIPT = Path(__file__).parent / "remote" / "translators.py"
MAPPED_WORDS = 20  # targets that a source word is mapped to
ALWAYS_WORDS = 50  # commonest targets that every sentence may have
ROUNDS = 4  # of expectation and maximisation


class Peers:
    """python: of the environment. folder: where questions, answers and converted models lie."""

    def __init__(self, python: Path, folder: Path) -> None:
        """Raises BadInput without the environment."""
        if not python.is_file():
            raise BadInput(f"there is no {python} with ctranslate2 and sacrebleu: `make bench-decoding` installs it")
        self.python, self.folder = python, folder
        folder.mkdir(parents=True, exist_ok=True)

    def ask(self, command: str, question: dict[str, Any]) -> dict[str, Any]:
        """The answer of a command of the script; raises BadInput where it fails."""
        paths = [self.folder / f"{command}.{end}.json" for end in ("question", "answer")]
        paths[0].write_text(json.dumps(question), "utf-8")
        result = subprocess.run(
            [str(self.python), str(SCRIPT), command, *map(str, paths)], capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise BadInput(f"{command} failed: {(result.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
        answer: dict[str, Any] = json.loads(paths[1].read_text("utf-8"))
        return answer

    def convert(self, task: Task) -> Path:
        """The translator as CTranslate2's, with a vmap of its training text."""
        vmap, out = self.folder / "vmap.txt", self.folder / "converted"
        if not vmap.is_file():
            write_vmap(vmap, task.sources["train"], task.targets["train"])
        vocabularies = [str(task.folder / name) for name in (SOURCE_WORDS, TARGET_WORDS)]
        self.ask(
            "convert",
            {"model": str(task.folder / MODEL), "vocabularies": vocabularies, "vmap": str(vmap), "out": str(out)},
        )
        return out

    def translate(self, folder: Path, sentences: list[str], beam: int, *, use_vmap: bool) -> dict[str, Any]:
        """Words, scores and seconds of all sentences."""
        return self.ask(
            "translate",
            {
                "folder": str(folder),
                "sentences": [line.split() for line in sentences],
                "beam_size": beam,
                "max_decoding_length": MAX_LENGTH,
                "use_vmap": use_vmap,
            },
        )


def write_vmap(path: Path, sources: list[str], targets: list[str]) -> None:
    """Map each source word to its likeliest targets; the first line, of no word, has those of every sentence."""
    probabilities = estimate_translations(sources, targets)
    common = Counter(word for line in targets for word in line.split()).most_common(ALWAYS_WORDS)
    lines = ["\t" + " ".join(word for word, _ in common)]
    for word, shares in sorted(probabilities.items()):
        best = sorted(shares, key=lambda target: (-shares[target], target))[:MAPPED_WORDS]
        lines.append(f"{word}\t{' '.join(best)}")
    path.write_text("\n".join(lines) + "\n", "utf-8")


def estimate_translations(sources: list[str], targets: list[str]) -> dict[str, dict[str, float]]:
    """IBM's model 1: probabilities of target words by source word."""
    pairs = [(source.split(), target.split()) for source, target in zip(sources, targets, strict=True)]
    shares: dict[str, dict[str, float]] = {}
    for source, target in pairs:
        for word in source:
            shares.setdefault(word, {}).update(dict.fromkeys(target, 1.0))
    for _ in range(ROUNDS):
        shares = improve_shares(shares, pairs)
    return shares


def improve_shares(
    shares: dict[str, dict[str, float]], pairs: list[tuple[list[str], list[str]]]
) -> dict[str, dict[str, float]]:
    """One round of expectation and maximisation."""
    counts: dict[str, dict[str, float]] = {word: dict.fromkeys(row, 0.0) for word, row in shares.items()}
    for source, target in pairs:
        for other in target:
            total = sum(shares[word][other] for word in source)
            for word in source:
                counts[word][other] += shares[word][other] / total
    return {
        word: {other: count / total for other, count in row.items()}
        for word, row in counts.items()
        if (total := sum(row.values()))
    }
