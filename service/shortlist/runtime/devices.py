"""The devices that ONNX Runtime can use here, by name."""

from __future__ import annotations

import functools
import os
import re
from importlib import metadata
from typing import Any

from shortlist.core.extras import require
from shortlist.errors import DeviceError

DEVICE_PATTERN = re.compile(r"cpu|cuda:\d+")
DEVICE_VARIABLE = "SHORTLIST_DEVICE"
ORT_DISTRIBUTIONS = ("onnxruntime", "onnxruntime-gpu")
TELEMETRY_VARIABLE = "ORT_DISABLE_TELEMETRY"  # read once, when ONNX Runtime begins


def resolve_device(device: str | None) -> str:
    """Return the device to use: the argument, else SHORTLIST_DEVICE, else `cpu`; `cuda` means `cuda:0`.

    Raises DeviceError for a name other than `cpu` or `cuda:N`, and where CUDA is not available.
    """
    name = device or os.environ.get(DEVICE_VARIABLE) or "cpu"
    if name == "cuda":
        name = "cuda:0"
    if not DEVICE_PATTERN.fullmatch(name):
        raise DeviceError(f"'{name}' is no device: use cpu or cuda:N")
    if name != "cpu" and "CUDAExecutionProvider" not in import_onnxruntime().get_available_providers():
        raise DeviceError(
            f"{name} was asked for but ONNX Runtime has no CUDA here: run `pip install 'shortlist[gpu]'` "
            "in place of shortlist[cpu] on a machine with an NVIDIA driver, or use --device cpu"
        )
    return name


def import_onnxruntime() -> Any:
    """Import onnxruntime; raises MissingExtra, or DeviceError where both of its builds are installed.

    From 1.29 on its builds for Linux report processes and models to Microsoft, and keep an identifier of the machine in
    ~/.cache, unless the variable says that they must not: so it does, where it does not say anything yet.
    """
    os.environ.setdefault(TELEMETRY_VARIABLE, "1")
    check_single_build()
    return require("onnxruntime", "cpu")


@functools.cache
def check_single_build() -> None:
    """Raise DeviceError if both builds of ONNX Runtime are installed: one overwrites the files of the other."""
    if all(map(is_installed, ORT_DISTRIBUTIONS)):
        raise DeviceError(
            f"{' and '.join(ORT_DISTRIBUTIONS)} are both installed and overwrite each other: "
            f"run `pip uninstall {' '.join(ORT_DISTRIBUTIONS)}`, then install shortlist[cpu] or shortlist[gpu]"
        )


def is_installed(distribution: str) -> bool:
    """True if this distribution is installed."""
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def list_providers(device: str, *, capture: bool = False) -> list[Any]:
    """List the execution providers for a resolved device.

    capture: runs are captured as CUDA graphs and replayed. TF32 is off, since it rounds the factors of float32 products
    to ten bits, and scores are promised to be exact.
    """
    if device == "cpu":
        return ["CPUExecutionProvider"]
    settings = {"device_id": parse_device(device)[1], "use_tf32": "0", "enable_cuda_graph": str(int(capture))}
    return [("CUDAExecutionProvider", settings), "CPUExecutionProvider"]


def parse_device(device: str) -> tuple[str, int]:
    """Split `cuda:N` into `cuda` and N, `cpu` into `cpu` and 0."""
    kind, _, number = device.partition(":")
    return kind, int(number or 0)


def check_provider(session: Any, device: str) -> None:
    """Raise DeviceError if a session for CUDA runs on the CPU, as it does where a library is missing."""
    if device != "cpu" and session.get_providers()[0] != "CUDAExecutionProvider":
        raise DeviceError(f"{device} could not be used (driver or CUDA libraries missing): use --device cpu")
