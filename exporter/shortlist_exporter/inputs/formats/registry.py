"""Output layers from files of any kind: one module a format, each with a function (path, choice) -> Layer."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from shortlist.errors import BadInput, NotFound

from .base import Choice, Layer

FOLDER_READER = "hugging_face.read_folder_layer"
READERS = {  # a file name's ending -> module and function
    ".safetensors": "tensor_file.read_tensor_layer",
    ".npy": "tensor_file.read_tensor_layer",
    ".pt": "torch_file.read_torch_layer",
    ".pth": "torch_file.read_torch_layer",
    ".bin": "torch_file.read_torch_layer",
    ".onnx": "onnx_file.read_onnx_layer",
    ".gguf": "gguf_file.read_gguf_layer",
}


def read_layer(path: Path, choice: Choice) -> Layer:
    """The output layer in a file, chosen by its name's ending, or in a Hugging Face folder; raises NotFound, BadInput.

    A format's module is imported only for a file of the format, since some need a package of their own.
    """
    if not path.exists():
        raise NotFound(f"there is no file {path}")
    reader = FOLDER_READER if path.is_dir() else READERS.get(path.suffix)
    if reader is None:
        raise BadInput(f"{path} must end in {', '.join(READERS)}, or be a Hugging Face folder")
    module, _, function = reader.partition(".")
    layer: Layer = getattr(import_module(f".{module}", __package__), function)(path, choice)
    return layer
