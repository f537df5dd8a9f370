"""Namespaces of one API server, each with another kind of admission in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from benchmarks.served import Served
from registration.configurations import NAME_LABEL, RegistrationOptions
from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url, create, registered
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

ACCOUNT = "creator"
GROUP = "admissionregistration.k8s.io/v1"
REFUSED = 422

# Two of our rules for NVIDIA's GPUs: no container takes them by a variable, and none that holds
# one is privileged.
_HOLDS = (
    "c.?resources.limits.orValue({}).exists(k, k.startsWith('nvidia.com/'))"
    " || c.?resources.requests.orValue({}).exists(k, k.startsWith('nvidia.com/'))"
)
_GRANTED = (
    "c.?env.orValue([]).exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES'"
    " && !(e.?value.orValue('') in ['', 'none', 'void']))"
)
_PRIVILEGED = "c.?securityContext.privileged.orValue(false)"
_ALL = "(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, {})"


class AdmissionSetup(NamedTuple):
    """A namespace whose pods come in by `name`; `server` judges them, if it is a webhook."""

    name: str
    namespace: str
    server: Served | None


def creator(plane: ControlPlane) -> str:
    """The token of an account that may do everything."""
    namespace = plane.namespace()
    account = {"name": ACCOUNT, "namespace": namespace}
    named = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
    plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", named)
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
    plane: ControlPlane, servers: list[Served], manifest: Any
) -> Iterator[list[AdmissionSetup]]:
    """Without a webhook, with each of the `servers`, and with CEL; `manifest` is let in by all."""
    with ExitStack() as stack:
        made = [AdmissionSetup("no webhook", plane.namespace(), None)]
        for server in servers:
            namespace = plane.namespace()
            config = by_url(f"https://{server.address}", plane.authority.bundle)
            chosen = RegistrationOptions(default=Action.DENY)
            stack.enter_context(registered(plane, config, chosen, name=server.name, only=namespace))
            eventually(lambda ns=namespace: _is_judged(plane, ns, manifest), what=server.name)  # type: ignore[misc]
            made.append(AdmissionSetup(server.name, namespace, server))
        namespace = plane.namespace()
        stack.enter_context(_policy(plane, namespace))
        eventually(lambda: _is_ruled(plane, namespace), what="the policy is in force")
        yield [*made, AdmissionSetup("a CEL policy", namespace, None)]


def _is_judged(plane: ControlPlane, namespace: str, manifest: Any) -> bool:
    """Whether both paths of a webhook are called for a pod there."""
    before = _calls(plane)
    create(plane, namespace, manifest, dry_run=True)
    return _calls(plane) - before >= len(("mutate", "validate"))


def _calls(plane: ControlPlane) -> float:
    samples = plane.metrics().get("apiserver_admission_webhook_request_total", [])
    return sum(value for _, value in samples)


def _is_ruled(plane: ControlPlane, namespace: str) -> bool:
    taker = pod(container(**variable("all")))
    return create(plane, namespace, taker, dry_run=True).status == REFUSED


@contextmanager
def _policy(plane: ControlPlane, namespace: str) -> Iterator[None]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    rules = [{**rule, "operations": ["CREATE", "UPDATE"]}]
    taken = _ALL.format(f"!({_GRANTED}) || ({_HOLDS})")
    privileged = _ALL.format(f"!{_PRIVILEGED} || !({_HOLDS})")
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [
            {"expression": taken, "message": "a container takes GPUs by a variable"},
            {"expression": privileged, "message": "a privileged container holds a GPU"},
        ],
    }
    selector = {"matchLabels": {NAME_LABEL: namespace}}
    binding = {
        "policyName": "gpus",
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    kinds = {"ValidatingAdmissionPolicy": spec, "ValidatingAdmissionPolicyBinding": binding}
    paths = {
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    }
    for kind, said in kinds.items():
        head = {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "gpus"}}
        plane.create(f"/apis/{GROUP}/{paths[kind]}", {**head, "spec": said})
    try:
        yield
    finally:
        for path in reversed(paths.values()):
            plane.request("DELETE", f"/apis/{GROUP}/{path}/gpus")
