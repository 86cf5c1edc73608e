"""The manifests of Kubernetes, as kustomize builds them: what they promise each other and the service."""

from __future__ import annotations

import pytest
from shortlist.fleet.processes.member import ANSWER_SECONDS
from shortlist.server.metrics.prometheus import PHASES
from shortlist.server.settings import ENVIRONMENT_PREFIX, Settings

from tests.deploy.files import dockerfile
from tests.deploy.overlays import build_overlay

POD_OVERLAYS = ["cpu", "gpu"]
CLEANUP_SECONDS = 10  # of a shutdown beside its drain
SHUTDOWN_SECONDS = 5


@pytest.fixture(scope="module", params=POD_OVERLAYS)
def objects(request):
    """The objects of an overlay by their kind."""
    found = build_overlay(request.param)
    assert len(found) == 9
    return found


@pytest.fixture
def pod(objects):
    return objects["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture
def container(pod):
    (container,) = pod["containers"]
    return container


@pytest.fixture
def settings(objects):
    """The service's settings as the pod's environment has them."""
    data = objects["ConfigMap"]["data"]
    assert all(isinstance(value, str) for value in data.values())
    fields = {name.removeprefix(ENVIRONMENT_PREFIX).lower(): value for name, value in data.items()}
    assert fields.keys() <= Settings.model_fields.keys()
    return Settings(**fields)


def test_ports_agree(objects, container, settings):
    (port,) = container["ports"]
    assert port["containerPort"] == settings.port
    (service_port,) = objects["Service"]["spec"]["ports"]
    assert service_port["targetPort"] == port["name"]
    (rule,) = objects["NetworkPolicy"]["spec"]["ingress"]
    assert [each["port"] for each in rule["ports"]] == [port["name"]]
    (endpoint,) = objects["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["port"] == service_port["name"]
    assert endpoint["path"] == "/metrics"
    assert not settings.is_local


def test_labels_select_the_pods(objects):
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["Service"]["spec"]["selector"],
        objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels
    service = objects["Service"]["metadata"]["labels"].items()
    assert objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <= service


def test_probes_ask_what_the_lifecycle_answers(container):
    paths = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert paths == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    assert {container[name]["httpGet"]["port"] for name in paths} == {"http"}


def test_a_pod_drains_within_its_grace_and_is_seen_to_before_it_stops_accepting(pod, container, settings):
    probe = container["readinessProbe"]
    assert settings.drain_delay >= 2 * probe["periodSeconds"] * probe["failureThreshold"]
    drain = settings.drain_delay + settings.drain_seconds
    assert pod["terminationGracePeriodSeconds"] >= drain + SHUTDOWN_SECONDS + CLEANUP_SECONDS


def test_a_process_that_hangs_takes_no_pod_out_of_the_service(container):
    assert container["readinessProbe"]["timeoutSeconds"] > ANSWER_SECONDS


def test_pods_have_no_rights(pod, container):
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    context = container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    (user,) = {rest for word, rest in dockerfile()["service"].steps if word == "USER"}
    assert pod["securityContext"]["runAsUser"] == int(user)


def test_the_repository_comes_from_a_volume_and_scratch_from_memory(objects, pod, container, settings):
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert mounts["repository"]["mountPath"] == str(settings.repository)
    assert mounts["repository"]["readOnly"] is True
    claim = volumes["repository"]["persistentVolumeClaim"]
    assert claim["claimName"] == objects["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["tmp"]["emptyDir"]["medium"] == "Memory"
    assert mounts["tmp"]["mountPath"] == "/tmp"


def test_resources_are_bounded_and_fit_the_processes(container, settings):
    resources = container["resources"]
    assert resources["limits"] == resources["requests"]
    assert int(resources["limits"]["cpu"]) >= settings.processes
    assert ("nvidia.com/gpu" in resources["limits"]) == (settings.device == "cuda:0")


def test_pods_are_scaled_by_the_time_in_the_queue(objects):
    spec = objects["HorizontalPodAutoscaler"]["spec"]
    target = {key: spec["scaleTargetRef"][key] for key in ("kind", "name")}
    assert target == {"kind": "Deployment", "name": objects["Deployment"]["metadata"]["name"]}
    (metric,) = spec["metrics"]
    assert metric["pods"]["metric"]["name"] == "shortlist_queue_seconds"
    assert "queue" in PHASES
    assert spec["minReplicas"] > objects["PodDisruptionBudget"]["spec"]["maxUnavailable"]


def test_no_pod_asks_anybody(objects):
    spec = objects["NetworkPolicy"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"] == []


def test_keys_come_from_a_secret(objects, container):
    (variable,) = container["env"]
    assert variable["name"] == "SHORTLIST_API_KEYS"
    (endpoint,) = objects["ServiceMonitor"]["spec"]["endpoints"]
    secret = variable["valueFrom"]["secretKeyRef"]["name"]
    assert endpoint["authorization"]["credentials"]["name"] == secret
