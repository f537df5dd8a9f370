"""Each circumstance in docs/coverage.md has the stated outcome at a real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import pytest

from rules.finding import Action
from tests.testkit.admission.fault_load import counts
from tests.testkit.admission.registered_webhook import by_url, create, is_enforced, registered
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.objects import namespace as namespace_object
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.control_plane.quotas import await_quotas
from tests.testkit.coverage import annotation_attempts
from tests.testkit.coverage.observed import response_outcome
from tests.testkit.coverage.table import data
from tests.testkit.custom_kinds import custom_kind
from tests.testkit.end_to_end.steps import DENY, api_path, patch
from tests.testkit.exporter import ACCOUNT, CONTROLLER, FOREIGN, OWN, exporter_pod
from webhook.registration import MODE_LABEL

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")

BYPASS_POD = pod(container(**variable("all")))
GPU_POD = pod(container(**gpus(limits=1)))
CUDA = "nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04"
DRY_RUN = "?dryRun=All"
OK = 200
# Claims that schedulers make for the requests of a pod have it.
PAID = {"resource.kubernetes.io/extended-resource-claim": "true"}
# No server listens on this port.
NO_SERVER = "https://127.0.0.1:1"


class Environment(NamedTuple):
    """The control plane, a webhook server, and a namespace in mode deny."""

    plane: ControlPlane
    server: Server
    namespace: str

    def gpu_pod_path(self) -> str:
        """Create a pod that requests a GPU; return the API path of its ephemeral containers."""
        assert create(self.plane, self.namespace, GPU_POD).status == 201
        return api_path("Pod", self.namespace, "trainer", "ephemeralcontainers")

    def add_ephemeral_container(self, **debugger: Any) -> Response:
        """Add an ephemeral container to such a pod."""
        added = {"spec": {"ephemeralContainers": [container("debug", **debugger)]}}
        return patch(self.plane, self.gpu_pod_path(), added)

    def update(self, change: Any) -> Response:
        """Create a plain pod and change it."""
        assert create(self.plane, self.namespace, pod(container())).status == 201
        return patch(self.plane, api_path("Pod", self.namespace, "trainer"), change)

    def annotate(self, key: str, value: str) -> Response:
        """Create a plain pod and add an annotation to it."""
        return self.update({"metadata": {"annotations": {key: value}}})


def component_account(environment: Environment) -> Response:
    """A user creates a pod in the GPU operator's namespace, under its service account."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nvidia-plugin"}}
    metadata = {"name": "gpu-operator", "labels": {MODE_LABEL: "deny"}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    plane = environment.plane
    # If the test runs once more, the namespace may still be there.
    eventually(lambda: plane.create("/api/v1/namespaces", namespace), what="a new namespace")
    try:
        plane.create("/api/v1/namespaces/gpu-operator/serviceaccounts", account)
        eventually(lambda: is_enforced(plane, "gpu-operator"), what="gpu-operator is enforced")
        spec = {**BYPASS_POD["spec"], "serviceAccountName": "nvidia-plugin"}
        return create(plane, "gpu-operator", {**BYPASS_POD, "spec": spec}, dry_run=True)
    finally:
        plane.request("DELETE", "/api/v1/namespaces/gpu-operator")


def exporter(environment: Environment, what: str) -> Response:
    """The exporter's DaemonSet runs code of another user, in a namespace where it is excused."""
    plane, name = environment.plane, "gpu-monitoring"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    plane.request("POST", "/api/v1/namespaces", namespace_object(name, {MODE_LABEL: "deny"}))
    plane.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
    eventually(lambda: is_enforced(plane, name), what=f"{name} is enforced")
    for number, fields in enumerate(OWN.values()):
        good = exporter_pod(fields, f"own-{number}")
        assert create(plane, name, good, dry_run=True, user=CONTROLLER).status == 201
    env = [*FOREIGN[what].get("env", ()), *variable("all")["env"]]
    bad = exporter_pod({**FOREIGN[what], "env": env})
    return create(plane, name, bad, dry_run=True, user=CONTROLLER)


def mirror_pod(environment: Environment) -> Response:
    """A user creates a pod with the annotation of a mirror pod."""
    metadata = {"name": "trainer", "annotations": {"kubernetes.io/config.mirror": "0123456789"}}
    manifest = {
        **BYPASS_POD,
        "metadata": metadata,
        "spec": {**BYPASS_POD["spec"], "nodeName": "gpu-node-1"},
    }
    return create(environment.plane, environment.namespace, manifest)


def bind_without_scheduler(environment: Environment) -> Response:
    """A user binds a pod to a node before the scheduler does."""
    environment.gpu_pod_path()
    target = {"apiVersion": "v1", "kind": "Node", "name": "gpu-node-1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "trainer"}}
    path = api_path("Pod", environment.namespace, "trainer", "binding")
    return environment.plane.request("POST", path + DRY_RUN, {**binding, "target": target})


def gated_pod(environment: Environment) -> Response:
    """A pod that a scheduling gate holds gets a selection of GPU nodes."""
    gated = pod(container(), schedulingGates=[{"name": "example.com/queue"}])
    assert create(environment.plane, environment.namespace, gated).status == 201
    change = {"spec": {"nodeSelector": {"nvidia.com/gpu.present": "true"}}}
    path = api_path("Pod", environment.namespace, "trainer")
    return patch(environment.plane, path, change)


def older_pod(environment: Environment) -> Response:
    """A pod that was created before its namespace was in mode deny."""
    namespace = environment.plane.namespace({MODE_LABEL: "off"})
    assert create(environment.plane, namespace, BYPASS_POD).status == 201
    environment.plane.kubectl("label", "--overwrite", "namespace", namespace, f"{MODE_LABEL}=deny")
    eventually(lambda: is_enforced(environment.plane, namespace), what="the namespace is enforced")
    found = environment.plane.request("GET", api_path("Pod", namespace, "trainer"))
    return found._replace(status=201)


def create_in(environment: Environment, namespace: str) -> Response:
    """Create the pod in another namespace."""
    return create(environment.plane, namespace, BYPASS_POD, dry_run=True)


def below_the_minimum(environment: Environment) -> Response:
    """A namespace with the label off, which `minimumMode` raises to deny."""
    namespace = environment.plane.namespace({MODE_LABEL: "off"})
    config = by_url(environment.server.url, environment.plane.authority.bundle)
    options = DENY._replace(minimum=Action.DENY)
    with registered(environment.plane, config, options, name="gpuward-minimum", only=namespace):
        eventually(lambda: is_enforced(environment.plane, namespace), what="off is deny")
        return create_in(environment, namespace)


def without_replicas(environment: Environment, policy: Literal["Ignore", "Fail"]) -> Response:
    """The registered server does not exist; the response counts once the API server tried it."""
    namespace = environment.plane.namespace()
    config = by_url(NO_SERVER, environment.plane.authority.bundle)
    options = DENY._replace(failure_policy=policy)
    before = counts(environment.plane)

    def failed_call() -> Response | None:
        answer = create_in(environment, namespace)
        since = counts(environment.plane).since(before)
        return answer if since.failed or since.failed_open else None

    with registered(environment.plane, config, options, name="gpuward-gone", only=namespace):
        found = eventually(failed_call, what="a request to the webhook has failed")
    assert found is not None
    return found


def unregistered_kind(environment: Environment) -> Response:
    """A custom kind for which gpuward is not registered."""
    manifest = {
        "apiVersion": "coverage.example.com/v1",
        "kind": "Unknown",
        "metadata": {"name": "unknown"},
    }
    path = f"/apis/coverage.example.com/v1/namespaces/{environment.namespace}/unknowns"
    with custom_kind(environment.plane, "Unknown", "unknowns", "coverage.example.com"):
        return environment.plane.request(
            "POST", path, {**manifest, "spec": {"template": BYPASS_POD}}
        )


def require_claims(environment: Environment) -> None:
    """Skip the test where the API server has no claims for devices."""
    if environment.plane.request("GET", "/apis/resource.k8s.io/v1").status != OK:
        pytest.skip("this Kubernetes does not serve claims for devices by default")


def admin_access(environment: Environment, owners: Iterable[Any] = ()) -> Response:
    """A claim for devices in use, where the label of Kubernetes allows it."""
    require_claims(environment)
    labels = {MODE_LABEL: "deny", "resource.kubernetes.io/admin-access": "true"}
    namespace = environment.plane.namespace(labels)
    eventually(lambda: is_enforced(environment.plane, namespace), what="the namespace is enforced")
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All", "adminAccess": True}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "all-cards", "ownerReferences": list(owners)},
        "spec": {"devices": {"requests": [{"name": "all", "exactly": exactly}]}},
    }
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims{DRY_RUN}"
    return environment.plane.request("POST", path, claim)


def owned_claim(environment: Environment) -> Response:
    """Such a claim, about which its user says that a controller made it for a pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": True}
    return admin_access(environment, [owner])


def create_claim(environment: Environment, kind: str, **claim: Any) -> Response:
    """A claim for one GPU, or a template of such claims, with these fields besides."""
    require_claims(environment)
    exactly = {"deviceClassName": "gpu.nvidia.com"}
    spec = {"devices": {"requests": [{"name": "card", "exactly": exactly}]}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "second-card"}}
    if kind == "ResourceClaimTemplate":
        head["spec"] = {"spec": spec, **claim}
    else:
        head |= {"spec": spec, "metadata": {"name": "second-card", **claim}}
    path = f"/apis/resource.k8s.io/v1/namespaces/{environment.namespace}/{kind.lower()}s"
    return environment.plane.request("POST", path, head)


def annotated_claim_later(environment: Environment) -> Response:
    """A claim that gets the annotation after it was created."""
    assert create_claim(environment, "ResourceClaim").status == 201
    folder = f"/apis/resource.k8s.io/v1/namespaces/{environment.namespace}/resourceclaims"
    path = f"{folder}/second-card"
    answer = patch(environment.plane, path, {"metadata": {"annotations": PAID}})
    environment.plane.request("DELETE", path)
    return answer


def claim_status(environment: Environment) -> Response:
    """A claim into whose status a user writes the card that it has, without the scheduler."""
    assert create_claim(environment, "ResourceClaim").status == 201
    folder = f"/apis/resource.k8s.io/v1/namespaces/{environment.namespace}/resourceclaims"
    path = f"{folder}/second-card"
    card = {"request": "card", "driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [card]}}}
    answer = patch(environment.plane, f"{path}/status", {"status": status})
    environment.plane.request("DELETE", path)
    return answer


def made_up_owner(environment: Environment) -> Response:
    """A pod that says that a Job has made it."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    metadata = {**GPU_POD["metadata"], "ownerReferences": [owner]}
    manifest = {**GPU_POD, "metadata": metadata}
    return create(environment.plane, environment.namespace, manifest, dry_run=True)


def forged_role(environment: Environment, value: str = "cpu", **spec: Any) -> Response:
    """A pod of a group of Kueue that says itself which other pods it is like."""
    annotations = {"kueue.x-k8s.io/role-hash": value, "kueue.x-k8s.io/pod-group-total-count": "2"}
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/pod-group-name": "g"}
    metadata = {**GPU_POD["metadata"], "annotations": annotations, "labels": labels}
    manifest = {**GPU_POD, "metadata": metadata, "spec": {**GPU_POD["spec"], **spec}}
    return create(environment.plane, environment.namespace, manifest, dry_run=True)


def scoped_quota(environment: Environment) -> Response:
    """A pod with a deadline, where a quota without any GPU counts those that have none."""
    plane = environment.plane
    namespace = plane.namespace({MODE_LABEL: "deny"})
    eventually(lambda: is_enforced(plane, namespace), what="the namespace is enforced")
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {"requests.nvidia.com/gpu": "0"}
    spec = {"hard": hard, "scopes": ["NotTerminating"]}
    plane.create(path, {"metadata": {"name": "none"}, "spec": spec})
    await_quotas(plane, namespace)
    assert "exceeded quota" in create(plane, namespace, GPU_POD, dry_run=True).body["message"]
    with_deadline = {**GPU_POD["spec"], "activeDeadlineSeconds": 2**31 - 1}
    return create(plane, namespace, {**GPU_POD, "spec": with_deadline}, dry_run=True)


def of_highest_priority(environment: Environment, manifest: Any) -> Response:
    """The pod with a priority class that is above all classes of users."""
    spec = {**manifest["spec"], "priorityClassName": "system-node-critical"}
    return create(
        environment.plane, environment.namespace, {**manifest, "spec": spec}, dry_run=True
    )


ATTEMPTS: dict[str, Callable[[Environment], Response]] = {
    "ephemeral-variable": lambda e: e.add_ephemeral_container(**variable("all")),
    "ephemeral-privileged": lambda e: e.add_ephemeral_container(
        securityContext={"privileged": True}
    ),
    "ephemeral-known-image": lambda e: e.add_ephemeral_container(image=CUDA),
    "ephemeral-unknown-image": lambda e: e.add_ephemeral_container(
        image="registry.example.com/cuda:1"
    ),
    "admin-access": admin_access,
    "admin-access-owned": owned_claim,
    "claim-annotation": lambda e: create_claim(e, "ResourceClaim", annotations=PAID),
    "claim-annotation-template": lambda e: create_claim(
        e, "ResourceClaimTemplate", metadata={"annotations": PAID}
    ),
    "claim-annotation-later": annotated_claim_later,
    "claim-status": claim_status,
    "foreign-group": lambda e: create(
        e.plane, e.namespace, annotation_attempts.grouped_pod(), dry_run=True
    ),
    "made-up-owner": made_up_owner,
    "forged-role": forged_role,
    "forged-role-and-gate": lambda e: forged_role(
        e, "0a1b2c3d", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]
    ),
    "quota-scope": scoped_quota,
    "priority-gpu": lambda e: of_highest_priority(e, GPU_POD),
    "priority-gpu-node": lambda e: of_highest_priority(
        e, pod(container(), nodeSelector={"nvidia.com/gpu.present": "true"})
    ),
    "priority-elsewhere": lambda e: of_highest_priority(e, pod(container())),
    "update-annotation": lambda e: e.annotate("nvidia.cdi.k8s.io/pod", "nvidia.com/gpu=all"),
    **annotation_attempts.ATTEMPTS,
    "update-gated": gated_pod,
    "update-image": lambda e: e.update({"spec": {"containers": [{"name": "main", "image": CUDA}]}}),
    "disguised": component_account,
    "exporter-command": lambda e: exporter(e, "a command from a volume"),
    "exporter-library": lambda e: exporter(e, "a library to load"),
    "exporter-hook": lambda e: exporter(e, "a hook at the start"),
    "mirror": mirror_pod,
    "binding": bind_without_scheduler,
    "older-pod": older_pod,
    "excluded-namespace": lambda e: create_in(e, "kube-system"),
    "mode-off": lambda e: create_in(e, e.plane.namespace({MODE_LABEL: "off"})),
    "mode-off-below-the-minimum": below_the_minimum,
    "down-ignore": lambda e: without_replicas(e, "Ignore"),
    "down-fail": lambda e: without_replicas(e, "Fail"),
    "unregistered-kind": unregistered_kind,
}


@pytest.fixture
def environment(plane: ControlPlane, server: Server) -> Environment:
    return Environment(plane, server, plane.namespace({MODE_LABEL: "deny"}))


def test_every_circumstance_has_a_test() -> None:
    assert list(ATTEMPTS) == [entry["name"] for entry in data()["circumstances"]]


@pytest.mark.parametrize(
    "circumstance", data()["circumstances"], ids=lambda circumstance: circumstance["name"]
)
def test_circumstance(environment: Environment, circumstance: Any) -> None:
    assert response_outcome(ATTEMPTS[circumstance["name"]](environment)) == circumstance["outcome"]
