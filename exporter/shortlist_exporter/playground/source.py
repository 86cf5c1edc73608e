"""What a playground is of: a model that reads prompts, a repository of heads, or both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shortlist.errors import NotFound

from shortlist_exporter.capture.packaged_model import find_packaged_model

PACKAGED_NAME = "smollm2"  # stands for the model that a package carries
REPOSITORIES = Path("build/playground")  # heads that are made here, a repository a model


@dataclass(frozen=True)
class Source:
    """model: a Hugging Face folder or a GGUF file, None where vectors are pasted. repository: of bundles.

    name: what a head is called that is made of the model.
    """

    model: Path | None
    repository: Path
    name: str = ""


def find_source(place: str, model: str | None, repository: Path | None) -> Source:
    """What `place` is, a model or a repository, and what goes with it; raises NotFound, MissingExtra.

    model: that reads prompts, where `place` is a repository. repository: of heads, where `place` is a model; by default
    a folder of that model's own.
    """
    if is_model(place):
        path = find_model(place)
        name = name_head(place, path)
        return Source(path, repository or REPOSITORIES / name, name)
    if not Path(place).is_dir():
        raise NotFound(
            f"there is no model or repository at {place}: give a Hugging Face folder, a GGUF file, a repository or "
            f"'{PACKAGED_NAME}'"
        )
    if model is None:
        return Source(None, Path(place))
    path = find_model(model)
    return Source(path, Path(place), name_head(model, path))


def is_model(place: str) -> bool:
    """Whether a model is named: by the packaged one's name, a file, or a folder with a model's settings."""
    path = Path(place)
    return place == PACKAGED_NAME or path.is_file() or (path / "config.json").is_file()


def find_model(place: str) -> Path:
    """The path of a model, whichever way it is named; raises NotFound, MissingExtra."""
    path = find_packaged_model() if place == PACKAGED_NAME else Path(place)
    if not path.exists():
        raise NotFound(f"there is no model at {place}: give a Hugging Face folder, a GGUF file or '{PACKAGED_NAME}'")
    return path


def name_head(place: str, path: Path) -> str:
    """What a head of the model is called in its repository: letters, digits, dots and dashes of the model's name."""
    name = place if place == PACKAGED_NAME else path.resolve().name.removesuffix(".gguf")
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name).lstrip("._-") or "lm"
