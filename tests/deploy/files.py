"""What the files of the deployment say, parsed once for all tests."""

import json
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from shortlist.server.metrics.item_series import ItemSeries
from shortlist.server.metrics.prometheus import Metrics
from shortlist.server.precision.series import PrecisionSeries

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
REQUIREMENTS = DEPLOY / "requirements"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "shortlist.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"

SERIES = re.compile(r"\bshortlist_[a-z_]+\b")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "gauge": ("",)}
LABEL_LISTS = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
MATCHERS = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")


@dataclass
class Stage:
    """One stage of a Dockerfile: what it is built from, and its instructions as (word, rest)."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def runs(self) -> list[list[str]]:
        """The words of each RUN instruction."""
        return [shlex.split(rest) for word, rest in self.steps if word == "RUN"]

    def sources(self) -> list[str]:
        """What COPY takes from the build context."""
        copies = [rest.split() for word, rest in self.steps if word == "COPY"]
        return [source for words in copies if not words[0].startswith("--from=") for source in words[:-1]]

    def needs(self) -> set[str]:
        """Names that this stage is built from or copies from."""
        return {self.base} | set(re.findall(r"--from=(\S+)", "\n".join(rest for _, rest in self.steps)))


def read_yaml(path: Path) -> Any:
    """The one document in a YAML file."""
    return yaml.safe_load(path.read_text("utf-8"))


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of every instruction of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    parts = (line.strip().partition(" ") for line in text.splitlines())
    return [(word, rest) for word, _, rest in parts if word and not word.startswith("#")]


def base_images() -> dict[str, str]:
    """The build arguments before the first stage, which name the base images."""
    words = [word for word, _ in instructions()]
    return dict(rest.split("=", 1) for _, rest in instructions()[: words.index("FROM")])


def dockerfile() -> dict[str, Stage]:
    """Stage name -> stage, in order."""
    stages: dict[str, Stage] = {}
    for word, rest in instructions():
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages[name] = Stage(name, base)
        elif stages:
            list(stages.values())[-1].steps.append((word, rest))
    return stages


def ancestry(stages: dict[str, Stage], name: str) -> list[Stage]:
    """The stage and all those it is made from, in the order of the file."""
    names, todo = set(), [name]
    while todo:
        stage = stages.get(todo.pop())
        if stage and stage.name not in names:
            names.add(stage.name)
            todo += stage.needs()
    return [stage for stage in stages.values() if stage.name in names]


def pip_installs(stages: list[Stage]) -> list[list[str]]:
    """The arguments of each `pip install` in these stages."""
    return [words[2:] for stage in stages for words in stage.runs() if words[:2] == ["pip", "install"]]


def lock(name: str) -> dict[str, list[str]]:
    """Requirement -> hashes of a locked list of packages, which holds nothing else."""
    text = (REQUIREMENTS / f"{name}.txt").read_text("utf-8").replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return {words[0]: [word.removeprefix("--hash=") for word in words[1:]] for words in lines}


def default_settings() -> dict[str, str]:
    """The environment that the service's image sets."""
    (line,) = [rest for word, rest in dockerfile()["service"].steps if word == "ENV"]
    return dict(pair.split("=", 1) for pair in shlex.split(line))


def read_project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def extras() -> dict[str, list[str]]:
    return read_project()["project"]["optional-dependencies"]


def panels() -> list[dict[str, Any]]:
    return json.loads(DASHBOARD.read_text("utf-8"))["panels"]


def expressions() -> dict[str, str]:
    """Where it stands -> PromQL, of every panel, variable and alert."""
    board = json.loads(DASHBOARD.read_text("utf-8"))
    result = {f"panel '{p['title']}' {t['refId']}": t["expr"] for p in panels() for t in p["targets"]}
    result |= {f"variable {v['name']}": v["query"] for v in board["templating"]["list"]}
    rules = [rule for group in read_yaml(ALERTS)["groups"] for rule in group["rules"]]
    return result | {f"alert {rule['alert']}": rule["expr"] for rule in rules}


def series_of(expression: str) -> set[str]:
    """The service's series that a PromQL expression reads."""
    return set(SERIES.findall(expression))


def labels_of(expression: str) -> set[str]:
    """Labels that a PromQL expression matches or groups by."""
    lists = ",".join(LABEL_LISTS.findall(expression))
    return {label.strip() for label in lists.split(",") if label.strip()} | set(MATCHERS.findall(expression))


def exported_series() -> set[str]:
    """The names of all series that the service can export."""
    registry = Metrics("0").registry
    PrecisionSeries(list, registry)
    ItemSeries({}, list, registry)
    families = registry.collect()
    return {family.name + suffix for family in families for suffix in SUFFIXES[family.type]}
