"""Namespaces of one API server, each with another kind of admission control."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from benchmarks.served import ServerProcess
from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url, create, registered
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from webhook.registration import NAME_LABEL, RegistrationOptions

ACCOUNT = "creator"
GROUP = "admissionregistration.k8s.io/v1"
REFUSED = 422

# Two rules of gpuward in CEL, for NVIDIA GPUs: no container gets GPUs by a variable without
# requesting one, and no container that requests a GPU is privileged.
_REQUESTS_GPU = (
    "c.?resources.limits.orValue({}).exists(k, k.startsWith('nvidia.com/'))"
    " || c.?resources.requests.orValue({}).exists(k, k.startsWith('nvidia.com/'))"
)
_SETS_VARIABLE = (
    "c.?env.orValue([]).exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES'"
    " && !(e.?value.orValue('') in ['', 'none', 'void']))"
)
_PRIVILEGED = "c.?securityContext.privileged.orValue(false)"
_EVERY_CONTAINER = "(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, {})"


class AdmissionSetup(NamedTuple):
    """A namespace with one kind of admission control, and the webhook server, if there is one."""

    name: str
    namespace: str
    server: ServerProcess | None


def creator(plane: ControlPlane) -> str:
    """Create a ServiceAccount with all permissions, and return its token."""
    namespace = plane.namespace()
    account = {"name": ACCOUNT, "namespace": namespace}
    service_account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
    plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", service_account)
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }
    plane.create(f"/apis/{group}/v1/clusterrolebindings", binding)
    return plane.token(ACCOUNT, namespace)


@contextmanager
def admission_setups(
    plane: ControlPlane, servers: list[ServerProcess], manifest: Any
) -> Iterator[list[AdmissionSetup]]:
    """Yield a setup without a webhook, one for each of `servers`, and one with a CEL policy.

    Each setup must admit `manifest`.
    """
    with ExitStack() as stack:
        setups = [AdmissionSetup("no webhook", plane.namespace(), None)]
        for server in servers:
            namespace = plane.namespace()
            config = by_url(f"https://{server.address}", plane.authority.bundle)
            options = RegistrationOptions(default=Action.DENY)
            stack.enter_context(
                registered(plane, config, options, name=server.name, only=namespace)
            )
            eventually(lambda ns=namespace: _is_called(plane, ns, manifest), what=server.name)  # type: ignore[misc]
            setups.append(AdmissionSetup(server.name, namespace, server))
        namespace = plane.namespace()
        stack.enter_context(_policy(plane, namespace))
        eventually(lambda: _is_enforced(plane, namespace), what="the CEL policy is enforced")
        yield [*setups, AdmissionSetup("a CEL policy", namespace, None)]


def _is_called(plane: ControlPlane, namespace: str, manifest: Any) -> bool:
    """Return whether the API server calls both paths of the webhook for a pod."""
    before = _calls(plane)
    create(plane, namespace, manifest, dry_run=True)
    return _calls(plane) - before >= len(("mutate", "validate"))


def _calls(plane: ControlPlane) -> float:
    samples = plane.metrics().get("apiserver_admission_webhook_request_total", [])
    return sum(value for _, value in samples)


def _is_enforced(plane: ControlPlane, namespace: str) -> bool:
    refused_pod = pod(container(**variable("all")))
    return create(plane, namespace, refused_pod, dry_run=True).status == REFUSED


@contextmanager
def _policy(plane: ControlPlane, namespace: str) -> Iterator[None]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    rules = [{**rule, "operations": ["CREATE", "UPDATE"]}]
    granted = _EVERY_CONTAINER.format(f"!({_SETS_VARIABLE}) || ({_REQUESTS_GPU})")
    privileged = _EVERY_CONTAINER.format(f"!{_PRIVILEGED} || !({_REQUESTS_GPU})")
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [
            {"expression": granted, "message": "a container gets GPUs by a variable"},
            {"expression": privileged, "message": "a privileged container requests a GPU"},
        ],
    }
    selector = {"matchLabels": {NAME_LABEL: namespace}}
    binding = {
        "policyName": "gpus",
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    kinds = {"ValidatingAdmissionPolicy": policy, "ValidatingAdmissionPolicyBinding": binding}
    paths = {
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    }
    for kind, spec in kinds.items():
        header = {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "gpus"}}
        plane.create(f"/apis/{GROUP}/{paths[kind]}", {**header, "spec": spec})
    try:
        yield
    finally:
        for path in reversed(paths.values()):
            plane.request("DELETE", f"/apis/{GROUP}/{path}/gpus")
