"""Compose, Prometheus, Grafana and the Dockerfile agree with each other and with the service."""

import re

import pytest
from shortlist.server.settings import Settings

from tests.deploy.files import (
    ALERTS,
    DASHBOARD,
    DEPLOY,
    ROOT,
    ancestry,
    default_settings,
    dockerfile,
    exported_series,
    expressions,
    extras,
    panels,
    pip_installs,
    read_yaml,
    series_of,
)

COMPOSE = read_yaml(ROOT / "docker-compose.yml")
SERVICES = COMPOSE["services"]
PROMETHEUS = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")
GRAFANA = DEPLOY / "grafana" / "provisioning"
REPOSITORY = "${REPO:-./build/repository}"
HEAVY = {"torch", "onnx", "transformers"}


def mounts(service):
    """Source -> target of a service's bind mounts; named volumes left out."""
    volumes = SERVICES[service].get("volumes", [])
    pairs = [(v["source"], v["target"]) if isinstance(v, dict) else v.split(":")[:2] for v in volumes]
    return {source: target for source, target in pairs if source not in COMPOSE["volumes"]}


def read_container_port(service):
    """The port inside the container."""
    return int(SERVICES[service]["ports"][0].rpartition(":")[2])


@pytest.mark.parametrize("service", SERVICES)
def test_mounted_files_exist(service):
    sources = set(mounts(service)) - {REPOSITORY}  # which `make demo` makes
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_repository_is_the_one_that_make_fills():
    assert mounts("shortlist") == {REPOSITORY: default_settings()["SHORTLIST_REPOSITORY"]}
    default = re.search(r"^REPO \?= (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert default is not None
    assert f"${{REPO:-./{default[1]}}}" == REPOSITORY


def test_ports_agree():
    port = int(default_settings()["SHORTLIST_PORT"])
    (job,) = PROMETHEUS["scrape_configs"]
    assert read_container_port("shortlist") == port == Settings.model_fields["port"].default
    assert ("EXPOSE", str(port)) in dockerfile()["service"].steps
    assert job["static_configs"] == [{"targets": [f"shortlist:{port}"]}]
    assert job.get("metrics_path", "/metrics") == "/metrics"


def test_grafana_reads_prometheus():
    (source,) = read_yaml(GRAFANA / "datasources" / "prometheus.yml")["datasources"]
    assert source["url"] == f"http://prometheus:{read_container_port('prometheus')}"
    assert {panel["datasource"]["uid"] for panel in panels()} == {source["uid"]}


def test_grafana_finds_its_dashboard():
    (provider,) = read_yaml(GRAFANA / "dashboards" / "shortlist.yml")["providers"]
    folder = mounts("grafana")["./deploy/grafana/dashboards"]
    assert provider["options"]["path"] == folder
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/{DASHBOARD.name}"


def test_prometheus_finds_its_rules():
    targets = mounts("prometheus")
    config = targets["./deploy/prometheus/prometheus.yml"]
    rules = targets["./" + str(ALERTS.relative_to(ROOT))]
    assert config == "/etc/prometheus/prometheus.yml"
    assert PROMETHEUS["rule_files"] == [rules]


@pytest.mark.parametrize("where", expressions())
def test_expressions_read_what_the_service_exports(where):
    expression = expressions()[where]
    assert series_of(expression) - exported_series() == set()
    assert series_of(expression) or "up{" in expression


def test_every_metric_is_shown():
    names = {name for expression in expressions().values() for name in series_of(expression)}
    hidden = {name for name in exported_series() - names if not name.endswith(("_sum", "_count"))}
    assert hidden == set()


def test_panels_are_apart_and_explained():
    cells = [
        (x, y)
        for box in (panel["gridPos"] for panel in panels())
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert all(panel["description"] for panel in panels())
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_copied_files_exist_and_are_not_ignored():
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    sources = [source for stage in dockerfile().values() for source in stage.sources()]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists() or f"!{source}" not in lines] == []


def test_service_is_the_default_image_and_not_root():
    stages = dockerfile()
    assert list(stages)[-1] == "service" == SERVICES["shortlist"]["build"]["target"]
    users = [rest for stage in ancestry(stages, "service") for word, rest in stage.steps if word == "USER"]
    assert users
    assert not {"0", "root"} & set(users)


def test_what_is_compiled_is_kept_where_all_else_is_read_only():
    place = default_settings()["NUMBA_CACHE_DIR"]
    service, steps = SERVICES["shortlist"], dockerfile()["service"].steps
    (user,) = [rest for word, rest in steps if word == "USER"]
    assert ("RUN", f"install --directory --owner={user} {place}") in steps
    assert service["read_only"]
    assert f"compiled:{place}" in service["volumes"]
    assert "compiled" in COMPOSE["volumes"]


def test_service_image_asks_for_nothing_heavy():
    installs = pip_installs(ancestry(dockerfile(), "service"))
    extra_names = {
        extra for words in installs for word in words for extra in re.findall(r"[\w-]+", word.partition("[")[2])
    }
    assert extra_names == {"cpu", "kernels", "serve"}
    assert HEAVY & {requirement for extra in extra_names for requirement in extras()[extra]} == set()
    assert not [words for words in installs if HEAVY & set(words)]


def test_stop_waits_for_accepted_requests():
    seconds = int(SERVICES["shortlist"]["stop_grace_period"].removesuffix("s"))
    assert seconds > sum(field.default for name, field in Settings.model_fields.items() if name.startswith("drain_"))
