"""The circumstances of docs/coverage.md, each tried at the real API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import pytest

from registration.configurations import MODE_LABEL, RegistrationOptions
from rules.finding import Action
from tests.testkit.admission.fault_load import counts
from tests.testkit.admission.registered_webhook import (
    Server,
    by_url,
    create,
    is_enforced,
    registered,
)
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.coverage.observed import outcome
from tests.testkit.coverage.table import data
from tests.testkit.custom_kinds import defined
from tests.testkit.end_to_end.steps import DENY, patch, path_of

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("tidy")

TAKER = pod(container(**variable("all")))
HOLDER = pod(container(**gpus(limits=1)))
CUDA = "nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04"
DRY = "?dryRun=All"
# Where nobody listens.
NOWHERE = "https://127.0.0.1:1"


class World(NamedTuple):
    """The control plane, a server, and a namespace in mode deny."""

    plane: ControlPlane
    server: Server
    namespace: str

    def holding(self) -> str:
        """A pod that holds a GPU; where its ephemeral containers are."""
        assert create(self.plane, self.namespace, HOLDER).status == 201
        return path_of("Pod", self.namespace, "trainer", "ephemeralcontainers")

    def debugged(self, **debugger: Any) -> Answer:
        """The answer to an ephemeral container in it."""
        added = {"spec": {"ephemeralContainers": [container("debug", **debugger)]}}
        return patch(self.plane, self.holding(), added)

    def updated(self, change: Any) -> Answer:
        """The answer to a change of a plain pod."""
        assert create(self.plane, self.namespace, pod(container())).status == 201
        return patch(self.plane, path_of("Pod", self.namespace, "trainer"), change)

    def annotated(self, key: str, value: str) -> Answer:
        """The answer to a new annotation of a plain pod."""
        return self.updated({"metadata": {"annotations": {key: value}}})


def disguised(world: World) -> Answer:
    """Somebody makes a pod where the GPU operator has its own, under its account."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nvidia-plugin"}}
    metadata = {"name": "gpu-operator", "labels": {MODE_LABEL: "deny"}}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    world.plane.create("/api/v1/namespaces", space)
    world.plane.create("/api/v1/namespaces/gpu-operator/serviceaccounts", account)
    eventually(lambda: is_enforced(world.plane, "gpu-operator"), what="gpu-operator is judged")
    spec = {**TAKER["spec"], "serviceAccountName": "nvidia-plugin"}
    answer = create(world.plane, "gpu-operator", {**TAKER, "spec": spec}, dry_run=True)
    world.plane.request("DELETE", "/api/v1/namespaces/gpu-operator")
    return answer


def mirrored(world: World) -> Answer:
    """A pod with the annotation of a mirror."""
    metadata = {"name": "trainer", "annotations": {"kubernetes.io/config.mirror": "0123456789"}}
    sent = {**TAKER, "metadata": metadata, "spec": {**TAKER["spec"], "nodeName": "gpu-node-1"}}
    return create(world.plane, world.namespace, sent)


def bound(world: World) -> Answer:
    """A pod that waits for the scheduler, and somebody who does not."""
    world.holding()
    target = {"apiVersion": "v1", "kind": "Node", "name": "gpu-node-1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "trainer"}}
    path = path_of("Pod", world.namespace, "trainer", "binding")
    return world.plane.request("POST", path + DRY, {**binding, "target": target})


def older(world: World) -> Answer:
    """A pod that was there before its namespace was in mode deny."""
    namespace = world.plane.namespace({MODE_LABEL: "off"})
    assert create(world.plane, namespace, TAKER).status == 201
    world.plane.kubectl("label", "--overwrite", "namespace", namespace, f"{MODE_LABEL}=deny")
    eventually(lambda: is_enforced(world.plane, namespace), what="it is judged now")
    found = world.plane.request("GET", path_of("Pod", namespace, "trainer"))
    return found._replace(status=201)


def in_namespace(world: World, namespace: str) -> Answer:
    """The pod in another namespace."""
    return create(world.plane, namespace, TAKER, dry_run=True)


def below_the_floor(world: World) -> Answer:
    """A namespace labelled off, which `minimumMode` raises to deny."""
    namespace = world.plane.namespace({MODE_LABEL: "off"})
    config = by_url(world.server.url, world.plane.authority.bundle)
    floor = RegistrationOptions(default=Action.DENY, minimum=Action.DENY)
    with registered(world.plane, config, floor, name="gpuward-floor", only=namespace):
        eventually(lambda: is_enforced(world.plane, namespace), what="off is deny")
        return in_namespace(world, namespace)


def down(world: World, policy: Literal["Ignore", "Fail"]) -> Answer:
    """A registration that leads nowhere, once the API server has tried it."""
    namespace = world.plane.namespace()
    config = by_url(NOWHERE, world.plane.authority.bundle)
    choices = DENY._replace(failure_policy=policy)
    before = counts(world.plane)

    def tried() -> Answer | None:
        answer = in_namespace(world, namespace)
        since = counts(world.plane).since(before)
        return answer if since.failed or since.opened else None

    with registered(world.plane, config, choices, name="gpuward-gone", only=namespace):
        found = eventually(tried, what="a call has failed")
    assert found is not None
    return found


def unregistered(world: World) -> Answer:
    """A kind that nobody has heard of."""
    made = {"apiVersion": "claims.example.com/v1", "kind": "Trick", "metadata": {"name": "trick"}}
    path = f"/apis/claims.example.com/v1/namespaces/{world.namespace}/tricks"
    with defined(world.plane, "Trick", "tricks", "claims.example.com"):
        return world.plane.request("POST", path, {**made, "spec": {"template": TAKER}})


TRIALS: dict[str, Callable[[World], Answer]] = {
    "ephemeral-variable": lambda w: w.debugged(**variable("all")),
    "ephemeral-privileged": lambda w: w.debugged(securityContext={"privileged": True}),
    "ephemeral-known-image": lambda w: w.debugged(image=CUDA),
    "ephemeral-unknown-image": lambda w: w.debugged(image="registry.example.com/cuda:1"),
    "update-annotation": lambda w: w.annotated("nvidia.cdi.k8s.io/pod", "nvidia.com/gpu=all"),
    "update-scheduler-annotation": lambda w: w.annotated("hami.io/vgpu-devices-allocated", "GPU-0"),
    "update-image": lambda w: w.updated(
        {"spec": {"containers": [{"name": "main", "image": CUDA}]}}
    ),
    "disguised": disguised,
    "mirror": mirrored,
    "binding": bound,
    "older-pod": older,
    "excluded-namespace": lambda w: in_namespace(w, "kube-system"),
    "mode-off": lambda w: in_namespace(w, w.plane.namespace({MODE_LABEL: "off"})),
    "mode-off-below-the-floor": below_the_floor,
    "down-ignore": lambda w: down(w, "Ignore"),
    "down-fail": lambda w: down(w, "Fail"),
    "unregistered-kind": unregistered,
}


@pytest.fixture
def world(plane: ControlPlane, server: Server) -> World:
    return World(plane, server, plane.namespace({MODE_LABEL: "deny"}))


def test_every_circumstance_has_a_trial() -> None:
    assert list(TRIALS) == [each["name"] for each in data()["circumstances"]]


@pytest.mark.parametrize("claim", data()["circumstances"], ids=lambda claim: claim["name"])
def test_circumstance(world: World, claim: Any) -> None:
    assert outcome(TRIALS[claim["name"]](world)) == claim["seen"]
