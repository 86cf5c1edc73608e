"""Output layers from files of any kind: one module a format, each with a function (path, choice) -> Layer."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from shortlist.errors import BadInput, NotFound

from .base import Choice, Layer
from .model_settings import LOGIT_SCALE_SETTINGS, SOFT_CAP_SETTINGS

FOLDER_READER = "hugging_face.read_folder_layer"
READERS = {  # a file name's ending -> module and function
    ".safetensors": "tensor_file.read_tensor_layer",
    ".npy": "tensor_file.read_tensor_layer",
    ".pt": "torch_file.read_torch_layer",
    ".pth": "torch_file.read_torch_layer",
    ".bin": "torch_file.read_torch_layer",
    ".ckpt": "torch_file.read_torch_layer",
    ".onnx": "onnx_file.read_onnx_layer",
    ".gguf": "gguf_file.read_gguf_layer",
}
FOLDER_ENDINGS = (".safetensors", ".bin")  # of files in folders of Hugging Face
MENDING = {  # an ending of files of weights that are not read -> how to save a layer in one that is
    **dict.fromkeys((".npz", ".h5", ".keras", ".msgpack"), "save its output layer as .npy, [V, d]: kernels transposed"),
    **dict.fromkeys((".txt", ".vec", ".pkl", ".pickle", ".joblib"), "save its vectors as .npy, [V, d]"),
    ".pt2": "save only the tensors, by torch.save(model.state_dict(), path)",
}


def read_layer(path: Path, choice: Choice) -> Layer:
    """The output layer in a file, chosen by its name's ending, or in a Hugging Face folder; raises NotFound, BadInput.

    A format's module is imported only for a file of the format, since some need a package of their own.
    """
    if not path.exists():
        raise NotFound(f"there is no file {path}")
    reader = FOLDER_READER if path.is_dir() else READERS.get(path.suffix)
    if reader is None:
        mending = f": {MENDING[path.suffix]}" if path.suffix in MENDING else ""
        raise BadInput(f"{path} must end in {', '.join(READERS)}, or be a Hugging Face folder{mending}")
    module, _, function = reader.partition(".")
    layer: Layer = getattr(import_module(f".{module}", __package__), function)(path, choice)
    if choice.weight and path.suffix in FOLDER_ENDINGS:
        refuse_settings_beside(path, choice.weight)
    return layer


def refuse_settings_beside(path: Path, weight_name: str) -> None:
    """Raise BadInput where the settings beside a model's file name a scale or a soft-cap of its logits."""
    settings = path.parent / "config.json"
    text = settings.read_text("utf-8", "replace") if settings.is_file() else ""
    for name in LOGIT_SCALE_SETTINGS + SOFT_CAP_SETTINGS:
        value = re.search(rf'"{name}"\s*:\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)', text)
        if value and float(value[1]) not in (0, 1):
            raise BadInput(
                f"{settings} has {name} {value[1]}, which {path} lacks: give the folder {path.parent}, with --tensor "
                f"{weight_name}; or the weight by itself, as safetensors with logit_scale or soft_cap in its metadata"
            )
