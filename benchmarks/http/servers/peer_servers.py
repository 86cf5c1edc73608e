"""Other servers with the dense layer: how they are installed, how they start, what requests they get."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from shortlist.core.results import FloatArray
from shortlist.errors import ServerError

from benchmarks.common.processes import free_port
from benchmarks.http.client import requests
from benchmarks.http.client.requests import Request, ResponseArrays

REMOTE = Path(__file__).with_name("remote").resolve()
RUNTIME_REQUIREMENT = "onnxruntime==1.31.1"
PEER_MODEL_NAME = "dense"
MAX_BATCH_ROWS = 16  # as in remote/dense_topk.py
MAX_BATCH_WAIT_SECONDS = 0.002  # that MLServer waits for a batch to fill; without it gathers nothing


@dataclass(frozen=True)
class PeerSetup:
    """venv: the peer's environment. folder: its files. dense: dense.onnx. k: classes in an answer."""

    venv: Path
    folder: Path
    dense: Path
    k: int

    @property
    def packages(self) -> Path:
        """Where the environment's packages lie."""
        return next(self.venv.glob("lib/python*/site-packages")).resolve()

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of remote/dense_topk.py."""
        return {"DENSE_ONNX": str(self.dense), "DENSE_K": str(self.k), "PYTHONPATH": str(REMOTE)}


@dataclass(frozen=True)
class Launch:
    """How a server is started."""

    command: list[str]
    port: int
    env: dict[str, str]


class Peer(ABC):
    """One server that is not ours. pauses: whether it outlives being stopped for a while."""

    name: str
    requirement: str
    title: str
    protocol: str
    pauses = True

    @abstractmethod
    def launch(self, setup: PeerSetup) -> Launch:
        """Write what it needs into `setup.folder`; raises ServerError."""

    @abstractmethod
    def make_request(self, context: FloatArray, k: int) -> Request:
        """The request for one row [1, d]."""

    def read_response(self, headers: Mapping[str, str], body: bytes) -> ResponseArrays:
        """The arrays of its response; raises ServerError."""
        return requests.read_infer(headers, body)

    def install(self, venv: Path) -> None:
        """Make the environment at the first use; raises ServerError."""
        stamp = venv / f"{self.name}.stamp"
        if stamp.is_file():
            return
        print(f"installing {self.requirement} into {venv}: about a minute", file=sys.stderr)
        run_command([sys.executable, "-m", "venv", str(venv)])
        python = str(venv / "bin" / "python")
        run_command(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", self.requirement, RUNTIME_REQUIREMENT]
        )
        stamp.touch()


def run_command(command: list[str]) -> None:
    """Run to the end; raises ServerError with the last line that it printed."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        last_line = (process.stderr or process.stdout).strip().rpartition("\n")[2]
        raise ServerError(f"`{' '.join(command[-3:])}` failed: {last_line[:200]}")


class LitServe(Peer):
    """JSON by a FastAPI route of its own; a worker process."""

    name, requirement = "litserve", "litserve==0.2.19"
    title, protocol = "LitServe 0.2.19", "its own JSON"

    def launch(self, setup: PeerSetup) -> Launch:
        port = free_port()
        return Launch([str(setup.venv / "bin/python"), str(REMOTE / "litserve_app.py"), str(port)], port, setup.env)

    def make_request(self, context: FloatArray, k: int) -> Request:
        """The server has its own k."""
        del k
        body = orjson.dumps({"context": context[0]}, option=orjson.OPT_SERIALIZE_NUMPY)
        return Request("/predict", {"Content-Type": "application/json"}, body)

    def read_response(self, headers: Mapping[str, str], body: bytes) -> ResponseArrays:
        row = requests.read_topk(headers, body)
        return ResponseArrays(row.ids[None], row.logprobs[None])


class MLServer(Peer):
    """Open Inference Protocol in JSON: it has no binary tensors over HTTP."""

    name, requirement = "mlserver", "mlserver==1.7.1"
    title, protocol = "MLServer 1.7.1", "v2, JSON"

    def launch(self, setup: PeerSetup) -> Launch:
        """Without a worker process: on one core it would only add a queue."""
        port = free_port()
        server = {
            "host": "127.0.0.1",
            "http_port": port,
            "grpc_port": free_port(),
            "metrics_port": free_port(),
            "parallel_workers": 0,
            "debug": False,
        }
        model = {
            "name": PEER_MODEL_NAME,
            "implementation": "mlserver_app.Dense",
            "max_batch_size": MAX_BATCH_ROWS,
            "max_batch_time": MAX_BATCH_WAIT_SECONDS,
        }
        (setup.folder / "settings.json").write_bytes(orjson.dumps(server))
        (setup.folder / "model-settings.json").write_bytes(orjson.dumps(model))
        own_env = {"MLSERVER_METRICS_DIR": str(setup.folder.resolve())}
        return Launch([str(setup.venv / "bin/mlserver"), "start", str(setup.folder)], port, setup.env | own_env)

    def make_request(self, context: FloatArray, k: int) -> Request:
        """The server has its own k."""
        del k
        tensor = {"name": "context", "shape": list(context.shape), "datatype": "FP32", "data": np.ravel(context)}
        body = orjson.dumps({"inputs": [tensor]}, option=orjson.OPT_SERIALIZE_NUMPY)
        return Request(f"/v2/models/{PEER_MODEL_NAME}/infer", {"Content-Type": "application/json"}, body)


TRITON_CONFIG = """name: "dense"
backend: "python"
max_batch_size: {batch}
input [{{ name: "context" data_type: TYPE_FP32 dims: [{dim}] }}]
output [{{ name: "ids" data_type: TYPE_INT64 dims: [{k}] }}, {{ name: "logprobs" data_type: TYPE_FP32 dims: [{k}] }}]
dynamic_batching {{ }}
instance_group [{{ count: 1 kind: KIND_CPU }}]
"""


class Triton(Peer):
    """The real tritonserver, from the wheel of PyTriton, with its Python backend."""

    name, requirement = "pytriton", "nvidia-pytriton==0.7.0"
    title, protocol = "Triton (nvidia-pytriton 0.7.0)", "v2, binary"
    pauses = False  # it takes its own stopped backend for dead

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def launch(self, setup: PeerSetup) -> Launch:
        """PyTriton's own start does not work on every Python, so the server is started directly."""
        root = setup.packages / "pytriton" / "tritonserver"
        backend = root / "backends" / "python"
        stub = root / "python_backend_stubs" / f"3.{sys.version_info.minor}" / "triton_python_backend_stub"
        if not stub.is_file():
            raise ServerError(f"the wheel has no Python backend for Python 3.{sys.version_info.minor}")
        shutil.copy2(stub, backend)
        repository = setup.folder / "repository"
        model = repository / PEER_MODEL_NAME
        (model / "1").mkdir(parents=True, exist_ok=True)
        (model / "config.pbtxt").write_text(TRITON_CONFIG.format(batch=MAX_BATCH_ROWS, dim=self.dim, k=setup.k))
        shutil.copy2(REMOTE / "triton_model.py", model / "1" / "model.py")
        port = free_port()
        command = [str(root / "bin" / "tritonserver"), f"--model-repository={repository.resolve()}"]
        command += [f"--backend-directory={backend.parent}", "--http-address=127.0.0.1", f"--http-port={port}"]
        command += ["--allow-grpc=false", "--allow-metrics=false", "--allow-gpu-metrics=false", "--exit-timeout-secs=2"]
        libraries = setup.packages / "nvidia_pytriton.libs"
        own_env = {"LD_LIBRARY_PATH": str(libraries), "DENSE_PATH": os.pathsep.join([str(setup.packages), str(REMOTE)])}
        return Launch(command, port, setup.env | own_env)

    def make_request(self, context: FloatArray, k: int) -> Request:
        """The server has its own k."""
        return requests.make_infer(PEER_MODEL_NAME, context, k)
