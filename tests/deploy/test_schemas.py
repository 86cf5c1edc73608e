"""The manifests of Kubernetes against the schemas of its API, without a cluster."""

from __future__ import annotations

import copy

import kubernetes_validate
import pytest

from tests.deploy.overlays import OVERLAYS, build_overlay

API = "1.37"
OTHERS = {"RayService", "ServiceMonitor"}  # kinds that operators bring, of which no package has schemas


def list_templates(ray_service: dict) -> list[dict]:
    """The pod templates of a RayService: of its head and of its workers."""
    config = ray_service["spec"]["rayClusterConfig"]
    return [config["headGroupSpec"]["template"], *(group["template"] for group in config["workerGroupSpecs"])]


def check(document: dict) -> None:
    """Raise where an object has an unknown field, or one of another type."""
    kubernetes_validate.validate(document, API, strict=True)


@pytest.mark.parametrize("name", OVERLAYS)
def test_objects_keep_their_schemas(name):
    documents = [each for kind, each in build_overlay(name).items() if kind not in OTHERS]
    assert len(documents) >= 6
    for document in documents:
        check(document)


def test_the_pods_of_a_ray_service_keep_theirs():
    templates = list_templates(build_overlay("ray")["RayService"])
    assert len(templates) == 2  # of the head, and of the nodes for replicas
    for template in templates:
        check({"apiVersion": "v1", "kind": "Pod"} | template)


@pytest.mark.parametrize(
    ("place", "value"), [("replicaz", 2), ("replicas", "two"), ("strategy", {"rollingUpdate": {"maxSurge": []}})]
)
def test_a_wrong_field_is_found(place, value):
    document = copy.deepcopy(build_overlay("cpu")["Deployment"])
    document["spec"][place] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        check(document)
