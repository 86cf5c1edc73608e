"""Every variable of the service that a file of the deployment names is a setting."""

from __future__ import annotations

import re

import pytest
from shortlist.server.settings import ENVIRONMENT_PREFIX, Settings

from tests.deploy.files import DEPLOY, ROOT

FILES = [ROOT / "docker-compose.yml", ROOT / "Dockerfile", *sorted((DEPLOY / "kubernetes").rglob("*.yaml"))]
# SHORTLIST_MEMORY and SHORTLIST_CPUS are Compose's own: no container sees them.
COMPOSE_VARIABLES = re.compile(r"\$\{(SHORTLIST_(?:MEMORY|CPUS))\b[^}]*\}")
COMMENT = re.compile(r"#.*")
VARIABLE = re.compile(rf"\b{ENVIRONMENT_PREFIX}[A-Z0-9_]+\b")
SETTINGS = {ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields}


def list_variables(text):
    return set(VARIABLE.findall(COMMENT.sub("", COMPOSE_VARIABLES.sub("", text))))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_variables_are_settings(path):
    assert list_variables(path.read_text("utf-8")) - SETTINGS == set()


def test_files_name_some():
    assert len(set().union(*(list_variables(path.read_text("utf-8")) for path in FILES))) > 8
    assert list_variables("SHORTLIST_PORTS: 1") - SETTINGS == {"SHORTLIST_PORTS"}
