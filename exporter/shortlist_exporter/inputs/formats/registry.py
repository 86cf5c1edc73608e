"""Output layers from files of any kind: one module a format, each with `read(path, choice) -> Layer`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from shortlist.errors import BadInput, NotFound

from .base import Choice, Layer

FOLDER = "hugging_face"
MODULES = {
    ".safetensors": "tensor_file",
    ".npy": "tensor_file",
    ".pt": "torch_file",
    ".pth": "torch_file",
    ".bin": "torch_file",
    ".onnx": "onnx_file",
    ".gguf": "gguf_file",
}


def read_layer(path: Path, choice: Choice) -> Layer:
    """The output layer in a file, by its name's end, or in a Hugging Face folder; raises NotFound, BadInput.

    A format's module is imported when it is asked for, since some need a package of their own.
    """
    if not path.exists():
        raise NotFound(f"there is no file {path}")
    name = FOLDER if path.is_dir() else MODULES.get(path.suffix)
    if name is None:
        raise BadInput(f"{path} must end in {', '.join(MODULES)}, or be a Hugging Face folder")
    layer: Layer = import_module(f".{name}", __package__).read(path, choice)
    return layer
