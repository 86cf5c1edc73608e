"""The overlay for Ray: what its RayService promises the service and the other objects."""

from __future__ import annotations

import tomllib

import pytest
import yaml
from shortlist.server.settings import ENVIRONMENT_PREFIX, Settings

from tests.deploy.files import ROOT
from tests.deploy.overlays import build_overlay
from tests.deploy.test_schemas import list_templates


@pytest.fixture(scope="module")
def objects():
    return build_overlay("ray")


@pytest.fixture(scope="module")
def application(objects):
    config = yaml.safe_load(objects["RayService"]["spec"]["serveConfigV2"])
    (application,) = config["applications"]
    return application | {"http": config["http_options"]}


@pytest.fixture(scope="module")
def settings(objects):
    data = objects["ConfigMap"]["data"]
    fields = {name.removeprefix(ENVIRONMENT_PREFIX).lower(): value for name, value in data.items()}
    assert fields.keys() <= Settings.model_fields.keys()
    return Settings(**fields)


def test_nothing_else_makes_pods(objects):
    assert not objects.keys() & {"Deployment", "HorizontalPodAutoscaler"}


def test_the_application_is_ours(application):
    module, _, name = application["import_path"].partition(":")
    source = (ROOT / "service" / f"{module.replace('.', '/')}.py").read_text("utf-8")
    assert f"\ndef {name}(" in source
    assert application["args"].keys() - {"release"} <= Settings.model_fields.keys()
    assert application["route_prefix"] == "/"


def test_ray_tells_its_makers_nothing(objects):
    for template in list_templates(objects["RayService"]):
        (container,) = template["spec"]["containers"]
        assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]


def test_ray_listens_where_the_service_is_asked(objects, application, settings):
    assert application["http"]["port"] == settings.port
    assert application["http"]["request_timeout_s"] > settings.request_timeout
    ports = {port["name"]: port["targetPort"] for port in objects["Service"]["spec"]["ports"]}
    for template in list_templates(objects["RayService"]):
        (container,) = template["spec"]["containers"]
        declared = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert set(ports.values()) <= declared.keys()
        assert declared["http"] == settings.port
    (endpoint,) = objects["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["port"] in ports


def test_labels_select_the_pods(objects):
    for kind, place in (("Service", ()), ("PodDisruptionBudget", ("matchLabels",))):
        labels = objects[kind]["spec"]["selector"]
        for key in place:
            labels = labels[key]
        assert labels
        for template in list_templates(objects["RayService"]):
            assert labels.items() <= template["metadata"]["labels"].items()


def test_replicas_fit_the_workers(objects, settings):
    (group,) = objects["RayService"]["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    cpus = int(container["resources"]["limits"]["cpu"]) * group["replicas"]
    assert settings.max_replicas * settings.replica_cpus <= cpus
    assert settings.replicas >= 2
    assert group["replicas"] >= 2


def test_pods_have_no_rights_and_read_the_repository(objects, settings):
    for template in list_templates(objects["RayService"]):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        (container,) = spec["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert mounts["repository"]["mountPath"] == str(settings.repository)
        assert mounts["repository"]["readOnly"] is True
        drain = settings.drain_delay + settings.drain_seconds
        assert spec["terminationGracePeriodSeconds"] >= drain


def test_ray_is_the_one_that_is_pinned(objects):
    version = objects["RayService"]["spec"]["rayClusterConfig"]["rayVersion"]
    assert f"ray=={version}" in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert extras["ray"] == ["ray[serve]"]
