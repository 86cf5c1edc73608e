"""What kustomize builds of the overlays for Kubernetes."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache

import yaml

from tests.conftest import require_or_skip
from tests.deploy.files import DEPLOY

FOLDER = DEPLOY / "kubernetes" / "overlays"
OVERLAYS = sorted(path.name for path in FOLDER.iterdir())


@cache
def build_overlay(name: str) -> dict[str, dict]:
    """The objects of an overlay by their kind, of which there is one each; skips where there is no kubectl."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        require_or_skip("kubectl", "kubectl is not installed, which builds the overlays")
    command = [kubectl, "kustomize", str(FOLDER / name)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert process.returncode == 0, process.stderr
    documents = list(yaml.safe_load_all(process.stdout))
    assert len({each["kind"] for each in documents}) == len(documents)
    return {each["kind"]: each for each in documents}
