"""Replicas as real controllers make them: each template is evaluated once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.admission.registered_webhook import by_url, is_enforced, registered
from tests.testkit.admission.reviews import container, gpus
from tests.testkit.admission.server_process import Server, folder_of
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.end_to_end.steps import DENY, NO_DRAIN, api_path

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")

REPLICAS = 4
_NUMBERS = itertools.count(1)
PATHS = ("mutate", "validate")
LABELS = {"app": "trainer"}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": LABELS},
    "spec": {"containers": [container(**gpus(limits=1))], "restartPolicy": "Always"},
}
JOB_TEMPLATE = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
CLAIM: dict[str, Any] = {
    "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
MAKERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Deployment": (
        "apps/v1",
        "deployments",
        {"replicas": REPLICAS, "selector": {"matchLabels": LABELS}, "template": TEMPLATE},
    ),
    "StatefulSet": (
        "apps/v1",
        "statefulsets",
        {
            "replicas": REPLICAS,
            "serviceName": "trainer",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": LABELS},
            "template": TEMPLATE,
            "volumeClaimTemplates": [CLAIM],
        },
    ),
    "Job": (
        "batch/v1",
        "jobs",
        {"parallelism": REPLICAS, "completions": REPLICAS, "template": JOB_TEMPLATE},
    ),
    "indexed Job": (
        "batch/v1",
        "jobs",
        {
            "parallelism": REPLICAS,
            "completions": REPLICAS,
            "completionMode": "Indexed",
            "template": JOB_TEMPLATE,
        },
    ),
}


@pytest.fixture(scope="module")
def server(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, str]]:
    """A server and the namespace whose pods it alone decides about."""
    folder = tmp_path_factory.mktemp("replica-cache")
    pair = plane.authority.issue("gpuward-cache", hosts=["127.0.0.1"])
    certificate = folder_of(pair, Path(folder) / "certificate")
    server = Server(processes, folder, certificate, name="gpuward-cache", arguments=NO_DRAIN)
    namespace = plane.namespace()
    config = by_url(server.url, plane.authority.bundle)
    with registered(plane, config, DENY, name="gpuward-cache", only=namespace):
        eventually(lambda: is_enforced(plane, namespace), what="the webhook is called")
        yield server, namespace


def counts(server: Server) -> tuple[float, float]:
    names = ("gpuward_decision_cache_hits_total", "gpuward_decision_cache_misses_total")
    hits, misses = map(server.metric, names)
    return hits, misses


@pytest.mark.parametrize("maker", MAKERS)
def test_the_replicas_of_a_template_are_evaluated_once(
    plane: ControlPlane, server: tuple[Server, str], maker: str
) -> None:
    (webhook, namespace), (version, plural, spec) = server, MAKERS[maker]
    hits, misses = counts(webhook)
    name = f"trainer-{next(_NUMBERS)}"
    kind = maker.removeprefix("indexed ")
    created = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    plane.create(f"/apis/{version}/namespaces/{namespace}/{plural}", created)
    eventually(
        lambda: has_fixed_pods(plane, namespace, name), what=f"pods of the {maker} are fixed"
    )
    found = counts(webhook)
    calls = REPLICAS * len(PATHS)
    assert (found[0] - hits, found[1] - misses) == (calls - len(PATHS), len(PATHS))


def test_the_next_release_of_a_program_is_evaluated_once(
    plane: ControlPlane, server: tuple[Server, str]
) -> None:
    webhook, namespace = server
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    name = f"released-{next(_NUMBERS)}"
    labels = {"app": name}
    for release in ("v1", "v2"):
        hits, misses = counts(webhook)
        image = f"registry.example.com/vision/train:{release}"
        command: dict[str, Any] = {
            "command": ["python", "train.py"],
            "args": ["--release", release],
        }
        worker = container(image=image, **command, **gpus(limits=1))
        metadata = {"labels": labels, "annotations": {"checksum/config": release}}
        spec = {
            "replicas": REPLICAS,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": {"containers": [worker]}},
        }
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": spec,
        }
        if release == "v1":
            plane.create(path, deployment)
        else:
            answer = plane.request("PUT", f"{path}/{name}", deployment)
            assert answer.status == 200
        eventually(
            lambda image=image: has_fixed_pods(plane, namespace, name, image),  # type: ignore[misc]
            what=f"the pods of {release} are fixed",
        )
    found = counts(webhook)
    calls = REPLICAS * len(PATHS)
    assert (found[0] - hits, found[1] - misses) == (calls - len(PATHS), len(PATHS))


def has_fixed_pods(plane: ControlPlane, namespace: str, name: str, image: str = "") -> bool:
    """Return whether all replicas exist, with the image if one is given, and were fixed."""
    pods = plane.request("GET", api_path("Pod", namespace)).body["items"]
    own = [pod for pod in pods if pod["metadata"]["name"].startswith(name)]
    fixed = [pod for pod in own if "gpuward.io/fixed" in pod["metadata"]["annotations"]]
    released = [p for p in fixed if image in ("", p["spec"]["containers"][0]["image"])]
    return len(released) == REPLICAS
