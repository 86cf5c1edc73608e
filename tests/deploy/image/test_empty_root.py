"""The service image's steps in an empty root: who runs there, what it holds and how large it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from shortlist.kernels.native.library import TARGETS

from benchmarks.common.processes import free_port
from tests.conftest import require_or_skip
from tests.deploy.files import ROOT, dockerfile
from tests.deploy.image.empty_root import BASE, list_files, make_python, place, run_stage
from tests.deploy.image.test_install import build
from tests.support.layers import DIM

pytestmark = pytest.mark.long

CHROOT = shutil.which("chroot")
WITH_PROC = f'{shutil.which("mount")} -t proc proc "$0/proc" && exec {CHROOT} "$@"'  # containers have it, too
MAX_MIB = 400  # of everything, with Python and the libraries of the system that it needs
START_SECONDS = 60
TOOLS = re.compile(r"^(x86_64-linux-gnu-)?(gcc|g\+\+|cc|c\+\+|clang|ld|as|make)(-[\d.]+)?$")
HEAVY = ("torch", "onnx", "transformers", "gguf", "nvidia", "triton")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The root, and the variables of the image."""
    if os.geteuid() != 0 or CHROOT is None:
        require_or_skip("chroot", "only root can change the root of a process")
    folder = tmp_path_factory.mktemp("image")
    build(dockerfile()["build"], folder)
    root = folder / "service"
    root.mkdir()
    make_python(root)
    return root, run_stage(dockerfile()["service"], root, folder)


def find_step(word: str) -> str:
    """What the one line of a word says in the service's stage."""
    (rest,) = [rest for each, rest in dockerfile()["service"].steps if each == word]
    return rest


@pytest.fixture(scope="module")
def server(image, small_repository):
    """The entry point in that root, as the image's user; its process, and a client."""
    (root, variables), port = image, free_port()
    shutil.copytree(small_repository, root / "repository", dirs_exist_ok=True)
    (root / "repository").chmod(0o755)  # pytest's own folders are for its user alone
    user = find_step("USER")
    inside = [f"--userspec={user}:{user}", str(root), *json.loads(find_step("ENTRYPOINT"))]
    command = [shutil.which("unshare"), "--mount", "/bin/sh", "-c", WITH_PROC, str(root), *inside]
    environment = variables | {
        "PATH": str(BASE / "bin"),
        "SHORTLIST_PORT": str(port),
        "SHORTLIST_HOST": "127.0.0.1",
        "SHORTLIST_THREADS": "1",
        "LD_LIBRARY_PATH": str(BASE / "lib"),
    }
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        wait_ready(client, process)
        yield process, client
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    process.stderr.close()


def wait_ready(client: httpx.Client, process: subprocess.Popen) -> None:
    """Wait until the server is ready; fails with what it said where it ends."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, process.stderr.read()
        try:
            if client.get("/readyz").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("it was not ready in time")


def test_it_answers_as_the_images_user(server):
    process, client = server
    answer = client.post("/v1/topk", json={"model": "lm", "contexts": [[0.5] * DIM], "k": 5})
    assert answer.status_code == httpx.codes.OK, answer.text
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert re.findall(r"^[UG]id:\s+(\d+)", status, re.MULTILINE) == [find_step("USER")] * 2


def test_its_compiled_loops_run(image):
    root, _ = image
    code = "from shortlist.kernels.native.library import name_target; print(name_target())"
    command = [CHROOT, str(root), "python", "-c", code]
    environment = {"PATH": str(BASE / "bin"), "LD_LIBRARY_PATH": str(BASE / "lib")}
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert process.stdout.strip() in TARGETS


def test_nothing_in_it_compiles(image):
    root, _ = image
    assert [path for path in list_files(root) if TOOLS.match(path.name)] == []


def test_packages_are_those_of_the_lock(image):
    root, _ = image
    packages = place(root, BASE) / "lib" / "python3.11" / "site-packages"
    installed = {path.name.split("-")[0].lower().replace("_", "-") for path in packages.glob("*.dist-info")}
    text = (ROOT / "deploy" / "requirements" / "service.txt").read_text("utf-8")
    locked = {name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    assert installed == locked | {"shortlist"}
    assert not [name for name in HEAVY if (packages / name).exists()]


def test_its_user_can_change_nothing(image):
    root, _ = image
    loose = [path for path in list_files(root) if path.stat().st_mode & 0o002 or path.stat().st_uid != 0]
    assert [path for path in loose if not path.is_relative_to(root / "repository")] == []


def test_it_is_small(image):
    root, _ = image
    files = [path for path in list_files(root) if not path.is_relative_to(root / "repository")]
    assert sum(path.stat().st_size for path in files) < MAX_MIB << 20
