"""The service image's install steps, in a fresh virtual environment: it serves with neither torch nor onnx."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from shortlist.kernels.native.library import TARGETS

from tests.deploy.files import ROOT, Stage, ancestry, dockerfile, expressions, labels_of, series_of
from tests.support.layers import CLASSES, DIM, RunningServer

pytestmark = pytest.mark.slow

ABSENT = ("torch", "onnx", "transformers", "gguf")
EXTRA_LABELS = {"le", "instance", "job"}  # labels of a bucket, and those that Prometheus adds
# series that this server, without such heads, lacks
OF_SOME_HEADS = ("shortlist_opened_tails", "shortlist_risk", "shortlist_precision")


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of the service's stage: its stages were built by the Dockerfile's own lines."""
    folder = tmp_path_factory.mktemp("image")
    for stage in ancestry(dockerfile(), "service"):
        build(stage, folder)
    return folder / "service" / "venv" / "bin"


def build(stage: Stage, folder: Path) -> None:
    """Make a stage below `folder`: what it copies, and a virtual environment in the place of its Python."""
    root = folder / stage.name
    subprocess.run([sys.executable, "-m", "venv", root / "venv"], check=True)
    place = root
    for word, rest in stage.steps:
        if word == "WORKDIR":
            place = root / rest.removeprefix("/")
        elif word == "COPY":
            copy_all(rest.split(), folder, place)
        elif word == "RUN":
            run_pip(root / "venv" / "bin" / "python", shlex.split(rest), place)


def copy_all(words: list[str], folder: Path, place: Path) -> None:
    """COPY files and folders from the project, or from another stage, into `place`."""
    source = ROOT
    if words[0].startswith("--from="):
        source = folder / words.pop(0).removeprefix("--from=")
    *names, target = words
    for name in names:
        path = source / name.removeprefix("/")
        copy(path, place / (path.name if target == "./" else target))


def run_pip(python: Path, words: list[str], place: Path) -> None:
    """Run pip. The image keeps no cache, to stay small; here the one that is there saves minutes.

    The image has all modules compiled, too; here those that are imported are, when they are.
    """
    assert words.pop(0) == "pip"
    arguments = [word for word in words if word != "--no-cache-dir"]
    if words[0] == "install":
        arguments.append("--no-compile")
    subprocess.run([python, "-m", "pip", *arguments, "-qq"], cwd=place, check=True)


def copy(source: Path, target: Path) -> None:
    """COPY one file or folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)


def environment(**more: str) -> dict[str, str]:
    """This environment without what would let another installation or other settings in."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHORTLIST_"))}
    return variables | more


def run(venv: Path, code: str) -> str:
    """What `code` prints in the virtual environment."""
    command = [venv / "python", "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout.strip()


@pytest.fixture(scope="module")
def server(venv: Path, small_repository: Path, tmp_path_factory: pytest.TempPathFactory):
    """The service as it was installed, over the small repository, whose items may change."""
    changes = str(tmp_path_factory.mktemp("changes"))
    with RunningServer(small_repository, "--item-changes", changes, python=str(venv / "python")) as running:
        yield running.http


def topk(server: httpx.Client) -> dict:
    """The answer to one context."""
    answer = server.post("/v1/topk", json={"model": "lm", "contexts": [[0.5] * DIM], "k": 5})
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()


@pytest.mark.parametrize("module", ABSENT)
def test_heavy_packages_are_not_installed(venv, module):
    assert run(venv, f"import importlib.util as u; print(u.find_spec('{module}'))") == "None"


def test_installed_package_is_the_copy(venv):
    assert Path(run(venv, "import shortlist; print(shortlist.__file__)")).is_relative_to(venv.parent)


def test_import_brings_no_server(venv):
    modules = run(venv, "import sys, shortlist; print(*(name for name in sys.modules if '.' not in name))").split()
    assert "shortlist" in modules
    assert {"fastapi", "uvicorn", "prometheus_client"} & set(modules) == set()


def test_compiled_loops_are_installed(venv):
    assert run(venv, "from shortlist.kernels.native.library import name_target; print(name_target())") in TARGETS


def test_entry_point_is_installed(venv):
    (entry,) = [rest for word, rest in dockerfile()["service"].steps if word == "ENTRYPOINT"]
    program, *words = json.loads(entry)
    command = [venv / program, *words, "--help"]
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    assert "--port" in process.stdout


def test_missing_extra_is_one_line_that_names_it(venv, tmp_path):
    command = [venv / "shortlist", "export", "--weights", "a", "--contexts", "b", "--method", "svd", "--out", "c/1"]
    process = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=tmp_path, check=False)
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 1
    assert "shortlist[export]" in process.stderr


def test_it_answers_with_neither_torch_nor_onnx(server):
    answer = topk(server)
    assert len(answer["ids"][0]) == len(answer["logprobs"][0]) == 5
    assert all(0 <= id_ < CLASSES for id_ in answer["ids"][0])


def test_health_check_tells_alive_from_dead(venv, server, free_port):
    (check,) = [rest for word, rest in dockerfile()["service"].steps if word == "HEALTHCHECK"]
    program, *words = json.loads(check.partition("CMD ")[2])
    codes = [
        subprocess.run(
            [venv / program, *words],
            env=environment(SHORTLIST_PORT=str(port)),
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
        for port in (server.base_url.port, free_port)
    ]
    assert codes == [0, 1]


def test_metrics_have_the_series_and_labels_that_deploy_reads(server):
    topk(server)
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(server.get("/metrics").text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for where, expression in expressions().items():
        present = {name for name in series_of(expression) if not name.startswith(OF_SOME_HEADS)}
        assert present <= set(labels), where
        if not present:
            continue
        labels_by_series = EXTRA_LABELS.union(*(labels[name] for name in present))
        assert labels_of(expression) <= labels_by_series, where
