"""The files that a capture writes beside its contexts: the output layer and the labels, each whole or not at all."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors.numpy import save
from shortlist.errors import ShortlistError

from shortlist_exporter.inputs.sources import Dense


def write_head(out: Path, dense: Dense, source: str) -> None:
    """Write `weight`, `bias`, `padded` (safetensors), with scale and soft-cap in the metadata."""
    tensors: dict[str, npt.NDArray[Any]] = {"weight": dense.weight, "padded": dense.padded}
    if dense.bias is not None:
        tensors["bias"] = dense.bias
    metadata = {"logit_scale": repr(dense.logit_scale), "model": source}
    if dense.soft_cap is not None:
        metadata["soft_cap"] = repr(dense.soft_cap)
    with write_whole(out) as temporary:
        temporary.write_bytes(save(tensors, metadata))  # save_file would hide it from all other users


def write_labels(out: Path, labels: list[str]) -> None:
    """Write a JSON list of V strings."""
    with write_whole(out) as temporary:
        temporary.write_text(json.dumps(labels), "utf-8")


@contextmanager
def write_whole(out: Path) -> Iterator[Path]:
    """Give a path to write to that becomes `out` at the end, or is deleted; raises ShortlistError."""
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.unfinished")
    with report_disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def report_disk_errors(out: Path) -> Iterator[None]:
    """Turn a full disk or a folder that cannot be written into a ShortlistError."""
    try:
        yield
    except OSError as error:
        raise ShortlistError(
            f"{out} cannot be written ({error.strerror or error}): mend that, then run the same command again"
        ) from error
