"""Compose, Prometheus, Grafana and the Dockerfile agree with each other and with the service."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from shortlist.server.access.hosts import HostRules
from shortlist.server.settings import Settings

from tests.deploy.files import (
    ALERTS,
    DASHBOARD,
    DEPLOY,
    REQUIREMENTS,
    ROOT,
    ancestry,
    base_images,
    default_settings,
    dockerfile,
    exported_series,
    expressions,
    extras,
    lock,
    panels,
    pip_installs,
    read_project,
    read_yaml,
    series_of,
)

COMPOSE = read_yaml(ROOT / "docker-compose.yml")
SERVICES = COMPOSE["services"]
PROMETHEUS = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")
GRAFANA = DEPLOY / "grafana" / "provisioning"
REPOSITORY = "${REPO:-./build/repository}"
INPUTS = "${INPUTS:-./build/inputs}"
RULES = [rule for group in read_yaml(ALERTS)["groups"] for rule in group["rules"]]
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
    sources = set(mounts(service)) - {REPOSITORY, INPUTS}  # which `make demo` and users make
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_repository_is_the_one_that_make_fills():
    assert mounts("shortlist") == {REPOSITORY: default_settings()["SHORTLIST_REPOSITORY"]}
    default = re.search(r"^REPO \?= (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert default is not None
    assert f"${{REPO:-./{default[1]}}}" == REPOSITORY


def test_the_exporter_fills_the_repository_once_where_it_is_asked_to():
    exporter = SERVICES["exporter"]
    assert exporter["profiles"] == ["export"]
    assert exporter["restart"] == "no"
    assert exporter["build"]["target"] == "exporter"
    target = mounts("exporter")[REPOSITORY]
    assert target == mounts("shortlist")[REPOSITORY]
    out = exporter["command"][exporter["command"].index("--out") + 1]
    assert Path(out).parents[1] == Path(target)
    (workdir,) = [rest for word, rest in dockerfile()["exporter"].steps if word == "WORKDIR"]
    assert mounts("exporter")[INPUTS] == workdir


def test_ports_agree():
    port = int(default_settings()["SHORTLIST_PORT"])
    (job,) = PROMETHEUS["scrape_configs"]
    assert read_container_port("shortlist") == port == Settings.model_fields["port"].default
    assert ("EXPOSE", str(port)) in dockerfile()["service"].steps
    assert job["static_configs"] == [{"targets": [f"shortlist:{port}"]}]
    assert job.get("metrics_path", "/metrics") == "/metrics"


def test_the_service_answers_prometheus_and_no_other_name():
    """Its port is on this machine's loopback address, which a page may have bound its own name to."""
    rules = HostRules.parse(SERVICES["shortlist"]["environment"]["SHORTLIST_ALLOWED_HOSTS"], "0.0.0.0")
    (job,) = PROMETHEUS["scrape_configs"]
    for target in (*job["static_configs"][0]["targets"], "localhost:8000", "127.0.0.1:8000"):
        assert rules.allow_host(target.encode())
    assert not rules.allow_host(b"evil.example:8000")


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


def test_base_images_are_arguments_so_that_they_can_be_named_by_digest():
    images = base_images()
    bases = {stage.base for stage in dockerfile().values()}
    assert bases == {f"${{{name}}}" for name in images}
    assert all(image.startswith("python:3.11") for image in images.values())


def test_compiler_and_build_tools_stay_in_a_stage_of_their_own():
    stages = dockerfile()
    assert stages["build"].base != stages["service"].base
    assert ("COPY", "--from=build /src/dist dist") in stages["service"].steps
    assert [word for word, rest in stages["service"].steps if word == "COPY" and "service " in rest] == []


def test_the_service_image_installs_what_is_locked_and_nothing_else():
    locked, own = pip_installs([dockerfile()["service"]])
    assert locked == ["--no-cache-dir", "--require-hashes", "-r", "service.txt"]
    assert {"--no-deps", "--no-index"} < set(own)
    (tools,) = pip_installs([dockerfile()["build"]])
    assert tools == ["--no-cache-dir", "--require-hashes", "-r", "build.txt"]
    assert dockerfile()["build"].runs()[1][:2] == ["pip", "wheel"]
    assert {"--no-deps", "--no-build-isolation"} < set(dockerfile()["build"].runs()[1])


@pytest.mark.parametrize("name", ["service", "build"])
def test_locks_pin_one_version_by_hashes_and_name_no_registry(name):
    packages = lock(name)
    assert len(packages) > 5
    for requirement, hashes in packages.items():
        assert re.fullmatch(r"[a-z0-9-]+==[^\s@]+", requirement), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement
    text = (REQUIREMENTS / f"{name}.txt").read_text("utf-8")
    assert "://" not in text
    assert "--index" not in text


def test_locks_are_those_of_the_project():
    """Where this fails, run `make lock`."""
    pins = {canonicalize_name(name): version for name, version in (each.split("==") for each in lock("service"))}
    wanted = {canonicalize_name(Requirement(line).name) for extra in ("cpu", "serve") for line in extras()[extra]}
    assert wanted - pins.keys() == set()
    constraints = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    for line in constraints:
        name, _, version = line.partition("==")
        if not line.startswith("#"):
            assert pins.get(canonicalize_name(name), version) == version, f"{line} is locked otherwise"
    assert pins.keys() & HEAVY == set()
    (backend,) = read_project()["build-system"]["requires"]
    assert backend in lock("build")


@pytest.mark.parametrize("service", SERVICES)
def test_every_container_is_bounded_and_has_no_rights(service):
    entry = SERVICES[service]
    assert entry["read_only"] is True
    assert entry["cap_drop"] == ["ALL"]
    assert entry["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "cpus", "pids_limit"} <= entry.keys()


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_published_on_this_machine_alone(service):
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[service]["ports"])


def test_nobody_logs_in_to_grafana():
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_say_how_grave_they_are(rule):
    assert rule["labels"]["severity"] in ("page", "ticket")


def test_stop_waits_for_accepted_requests():
    seconds = int(SERVICES["shortlist"]["stop_grace_period"].removesuffix("s"))
    assert seconds > sum(field.default for name, field in Settings.model_fields.items() if name.startswith("drain_"))


def test_images_of_others_are_named_by_digest():
    images = [service["image"] for service in SERVICES.values() if "image" in service]
    assert len(images) == 2
    for image in [*base_images().values(), *images]:
        assert re.search(r"@sha256:[0-9a-f]{64}}?$", image), image


def test_grafana_tells_its_makers_nothing():
    environment = SERVICES["grafana"]["environment"]
    assert {name for name in environment if name.startswith("GF_ANALYTICS")} == {
        "GF_ANALYTICS_REPORTING_ENABLED",
        "GF_ANALYTICS_CHECK_FOR_UPDATES",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES",
    }
    assert {value for name, value in environment.items() if name.startswith("GF_ANALYTICS")} == {"false"}
    assert environment["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"
