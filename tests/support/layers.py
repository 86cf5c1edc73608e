"""Small layers, bundles and servers. Real ones: exported by the exporter, run by `shortlist serve`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import httpx
import numpy as np
import torch
from shortlist.bundle.names import Names
from shortlist.bundle.reader import Bundle
from shortlist.cli.dispatch import main
from shortlist.head import Head
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, Dense

CLASSES, DIM = 300, 16


def make_dense(classes: int = CLASSES, dim: int = DIM, seed: int = 0, **extra: object) -> Dense:
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((classes, dim)).astype(np.float32) * np.linspace(2, 0.1, dim, dtype=np.float32)
    return Dense(weight, **extra)


def list_layers(classes: int, padded: tuple[int, int] = (5, 1999)) -> dict[str, dict[str, object]]:
    """Arguments of `make_dense`: a plain layer, and one with all that a layer may have."""
    bias = np.random.default_rng(3).standard_normal(classes).astype(np.float32)
    whole = {"bias": bias, "logit_scale": 0.7, "soft_cap": 30.0, "padded": np.array(padded)}
    return {"plain": {}, "whole": whole}


def make_contexts(rows: int = 400, dim: int = DIM, seed: int = 1) -> Contexts:
    rng = np.random.default_rng(seed)
    return Contexts((rng.standard_normal((rows, dim)) @ rng.standard_normal((dim, dim))).astype(np.float32))


def contexts_elsewhere(contexts: np.ndarray, rows: int = 400, directions: int = 4) -> np.ndarray:
    """[rows, d] in so many directions, which `contexts` [n, d] hardly use."""
    unused = np.linalg.svd(contexts, full_matrices=False)[2][-directions:]
    return (np.random.default_rng(1).standard_normal((rows, directions)) @ unused * 5).astype(np.float32)


def make_head(folder: Path, dense: Dense, contexts: Contexts | None = None, **request: object) -> Head:
    """Export to `folder`/lm/1 and open it."""
    out = folder / "lm" / "1"
    request = {"threads": 1, "method": "svd", "options": {"basis": "context"}, "fallback": False} | request
    export(dense, contexts or make_contexts(dim=dense.dim), out, Request(**request))
    return Head(Bundle(out), "cpu", 1)


def make_small_repository(root: Path) -> None:
    dense, contexts = make_dense(), make_contexts()
    options = {"basis": "context", "width": "8", "full_view": "40"}
    labels = [f"word {i}" for i in range(CLASSES)]
    texts = {"labels": labels, "names": Names.make([f"item-{i}" for i in range(CLASSES)])}
    export(dense, contexts, root / "lm" / "1", Request("svd", options, **texts, fallback=False, threads=1, at=(3,)))
    export(dense, contexts, root / "dense" / "1", Request("full", threads=1))


def copy_writable(source: Path, target: Path) -> Path:
    """A copy of a folder whose files may be changed, unlike those of a bundle."""
    shutil.copytree(source, target)
    for path in target.rglob("*"):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return target


def logits_of(dense: Dense, contexts: np.ndarray) -> np.ndarray:
    """Logits [n, V] of the dense layer in float64."""
    logits = contexts.astype(np.float64) @ dense.weight.T.astype(np.float64)
    logits = (logits + (0 if dense.bias is None else dense.bias)) * dense.logit_scale
    if dense.soft_cap is not None:
        logits = dense.soft_cap * np.tanh(logits / dense.soft_cap)
    logits[:, dense.padded] = -np.inf
    return logits


def logprobs_of(dense: Dense, contexts: np.ndarray) -> np.ndarray:
    logits = logits_of(dense, contexts)
    peak = logits.max(axis=1, keepdims=True)
    return logits - peak - np.log(np.exp(logits - peak).sum(axis=1, keepdims=True))


def run_cli(*args: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `shortlist` as its own process."""
    command = [sys.executable, "-m", "shortlist", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


@contextmanager
def keep_process_settings() -> Iterator[None]:
    """Leave torch's threads and the handler of SIGTERM as they were: a command sets them for its whole process."""
    handler, threads = signal.getsignal(signal.SIGTERM), torch.get_num_threads()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        torch.set_num_threads(threads)


def call_cli(*args: object) -> subprocess.CompletedProcess[str]:
    """As `run_cli`, by the command's own function in this process, which has imported torch already."""
    out, errors = StringIO(), StringIO()
    with keep_process_settings(), redirect_stdout(out), redirect_stderr(errors):
        try:
            code = main([*map(str, args)])
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(args, code, out.getvalue(), errors.getvalue())


class RunningServer:
    """`python -m shortlist serve` as its own process."""

    def __init__(
        self,
        repository: Path,
        *flags: str,
        wait: bool = True,
        python: str = sys.executable,
        variables: dict[str, str] | None = None,
        **client: object,
    ) -> None:
        """variables: of the server's environment. client: options of the httpx client."""
        command = [python, "-m", "shortlist", "serve", str(repository), "--port", "0", *flags]
        self.unix_url = f"unix://{flags[flags.index('--unix-socket') + 1]}" if "--unix-socket" in flags else None
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SHORTLIST_")}
        environment = inherited | (variables or {})
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.log: list[str] = []
        self.url = self.address()
        self.reader = threading.Thread(target=self.drain, daemon=True)
        self.reader.start()
        self.http = httpx.Client(base_url=self.url, timeout=30, **client)
        if wait:
            self.wait_ready()

    def address(self) -> str:
        for line in self.process.stderr:
            self.log.append(line)
            match = re.search(r"listening on ((?:https?|unix)://\S+)", line)
            if match:
                return match[1]
        raise AssertionError("".join(self.log))

    def drain(self) -> None:
        self.log.extend(self.process.stderr)

    def wait_ready(self) -> None:
        for _ in range(300):
            if self.http.get("/readyz").status_code == 200:
                return
            time.sleep(0.1)
        raise AssertionError("".join(self.log))

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # as SIGTERM, without the second of the drain delay
        self.process.wait(timeout=30)
        self.reader.join(timeout=10)
        self.process.stderr.close()
