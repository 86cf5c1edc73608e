"""Fixtures that every test may use."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from shortlist.kernels.native import library
from shortlist_exporter.graphs import builder, certificate

from tests.support.heads import adaptive, grouped
from tests.support.layers import RunningServer, make_dense, make_head, make_small_repository

settings.register_profile(
    "quick", derandomize=True, deadline=None, max_examples=40, suppress_health_check=list(HealthCheck)
)
settings.load_profile("quick")


def require_or_skip(name: str, reason: str) -> None:
    """Skip with the reason; fail where REQUIRE names what is missing."""
    if name in os.environ.get("REQUIRE", "").split(","):
        pytest.fail(f"REQUIRE={name}, but {reason}")
    pytest.skip(reason)


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As where the native library was not built."""
    library.open_target.cache_clear()
    monkeypatch.setattr(library, "load_library", lambda: None)
    yield
    library.open_target.cache_clear()


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder named by DATA."""
    folder = os.environ.get("DATA")
    if not folder or not Path(folder).is_dir():
        require_or_skip("data", "DATA names no folder with the data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def small_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles `lm` (svd, labels, names) and `dense` (full), V = 300, d = 16."""
    root = tmp_path_factory.mktemp("repository")
    make_small_repository(root)
    return root


@pytest.fixture(scope="session")
def small_server(small_repository: Path, tmp_path_factory: pytest.TempPathFactory):
    """A real server over the small repository, on a port and on a Unix socket."""
    path = tmp_path_factory.mktemp("unix") / "s.sock"
    with RunningServer(small_repository, "--unix-socket", str(path)) as server:
        yield server


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def prove_small_layers(monkeypatch):
    """Exports write certificates for layers of any size, not for large ones alone, and weights that loops read."""
    monkeypatch.setattr(certificate, "MIN_WEIGHTS", 0)
    monkeypatch.setattr(builder, "INLINE_BYTES", 128)


@pytest.fixture(scope="session", params=grouped.LAYERS)
def grouped_dense(request):
    """The layer of `grouped_head`."""
    return make_dense(grouped.CLASSES, grouped.DIM, **grouped.LAYERS[request.param])


@pytest.fixture(scope="session", params=["2 bits", "int8"])
def grouped_options(request):
    """Previews mostly of 2 bits, or all in int8, as bundles had them before."""
    int8_width = {"2 bits": "6", "int8": grouped.OPTIONS["width"]}[request.param]
    return grouped.OPTIONS | {"int8_width": int8_width}


@pytest.fixture(scope="session")
def grouped_head(grouped_dense, grouped_options, tmp_path_factory):
    """A head of method grouped."""
    folder = tmp_path_factory.mktemp("grouped")
    return make_head(folder, grouped_dense, grouped.contexts, method="grouped", options=grouped_options)


@pytest.fixture(scope="session", params=adaptive.FORMS)
def adaptive_form(request):
    """One of the forms of plan adaptive, by name."""
    return request.param


@pytest.fixture(scope="session")
def adaptive_head(adaptive_form, tmp_path_factory):
    """A head of method adaptive or dsoftmax, in this form."""
    method, options = adaptive.FORMS[adaptive_form]
    return adaptive.make(tmp_path_factory.mktemp(method), method, options)


@pytest.fixture(scope="session")
def promise_head(tmp_path_factory):
    """Method grouped, V = 4,003, d = 68, which searches rows by a promise of .99."""
    layer = make_dense(grouped.PROMISE_CLASSES, grouped.DIM)
    options = grouped.PROMISE_OPTIONS | {"promise": "0.99"}
    return make_head(
        tmp_path_factory.mktemp("promise"), layer, grouped.promise_contexts, method="grouped", options=options
    )
