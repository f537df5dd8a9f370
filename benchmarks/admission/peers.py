"""Kyverno and Gatekeeper, with the policies that come nearest to what gpuward does for GPU pods.

They add the toleration and the affinity that gpuward adds. They refuse `NVIDIA_VISIBLE_DEVICES` in
a container without GPUs, devices and sockets of the node, and privileged containers with GPUs. That
is a small part of gpuward's rules, in the kinds of policies that their documents recommend.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rules.base.json_values import as_object
from tests.testkit.admission.registered_webhook import create
from tests.testkit.control_plane.build import Programs, gatekeeper, kyverno
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.controllers.controller import Controller, Recipe
from tests.testkit.controllers.recipes import GATEKEEPER, KYVERNO
from webhook.registration import NAME_LABEL

GPU, VARIABLE = "nvidia.com/gpu", "NVIDIA_VISIBLE_DEVICES"
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PREFERENCE = {
    "weight": 1,
    "preference": {
        "matchExpressions": [{"key": f"{GPU}.present", "operator": "In", "values": ["true"]}]
    },
}
REFUSED_PATHS = ("/dev/nvidia", "/run/containerd/containerd.sock", "/var/run/docker.sock")
# Namespaces with this label are not Gatekeeper's.
IGNORED_BY_GATEKEEPER = {"admission.gatekeeper.sh/ignore": "true"}


# As namespaces demand in which Pod Security is `restricted`.
_RESTRICTED = {
    "name": "manager",
    "image": "registry.example.com/manager:1",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}


class Peer(NamedTuple):
    """Another admission controller: how it is built and run, and its policies for a namespace."""

    name: str
    build: Callable[[], Programs]
    recipe: Recipe
    policies: Callable[[str], list[list[dict[str, Any]]]]


@contextmanager
def running_peer(
    peer: Peer, plane: ControlPlane, folder: Path, namespace: str, manifest: Any
) -> Iterator[None]:
    """Run `peer`, which acts on pods in `namespace` alone; it changes `manifest` from then on.

    API servers call Kyverno only for the namespaces that its policies select.
    """
    folder.mkdir()
    _give_all_rights(plane, peer)
    with Controller(peer.recipe, plane, peer.build(), folder):
        # Gatekeeper looks for its own pod, to which it adds what it has read.
        home = peer.recipe.namespace
        plane.kubectl("create", "serviceaccount", "default", "-n", home)
        own = {"metadata": {"name": peer.name}, "spec": {"containers": [_RESTRICTED]}}
        plane.create(f"/api/v1/namespaces/{home}/pods", own)
        for step in peer.policies(namespace):
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": step})

            def is_applied(text: str = text) -> bool:
                plane.kubectl("apply", "--server-side", "-f", "-", input=text)
                return True

            eventually(is_applied, what=f"{peer.name} takes its policies", seconds=120)
        eventually(lambda: _acts(plane, namespace, manifest), what=f"{peer.name} acts", seconds=120)
        yield


def _give_all_rights(plane: ControlPlane, peer: Peer) -> None:
    """Let the peer do everything.

    No controller runs here that would put its roles together of others.
    """
    group = f"system:serviceaccounts:{peer.recipe.namespace}"
    plane.kubectl(
        *("create", "clusterrolebinding", peer.name, "--clusterrole=cluster-admin"),
        f"--group={group}",
    )


def _acts(plane: ControlPlane, namespace: str, manifest: Any) -> bool:
    """Return whether a good pod is changed, and a bad one refused."""
    changed = as_object(create(plane, namespace, manifest, dry_run=True).body)
    if not all(json.dumps(part)[1:-1] in json.dumps(changed) for part in (TOLERATION, PREFERENCE)):
        return False
    spec = {**manifest["spec"], "volumes": [], "containers": [_bypass()]}
    refused = create(plane, namespace, {**manifest, "spec": spec}, dry_run=True)
    return VARIABLE in str(refused.body) and "denied" in str(refused.body)


def _bypass() -> dict[str, Any]:
    variable = {"name": VARIABLE, "value": "all"}
    return {"name": "bypass", "image": "registry.example.com/bypass:1", "env": [variable]}


_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
_LIMITS = "c.?resources.?limits.orValue({})"
_REQUESTS_GPU = f"object.spec.containers.exists(c, '{GPU}' in {_LIMITS})"
_IS_REFUSED_PATH = " || ".join(
    f"v.?hostPath.?path.orValue('').startsWith('{path}')" for path in REFUSED_PATHS
)
_VALIDATIONS = {
    f"{VARIABLE} is set by a container that asks for no GPU": (
        f"object.spec.containers.all(c, '{GPU}' in {_LIMITS} || "
        f"!c.?env.orValue([]).exists(e, e.name == '{VARIABLE}'))"
    ),
    "devices and sockets of the node are not for pods": (
        f"!object.spec.?volumes.orValue([]).exists(v, {_IS_REFUSED_PATH})"
    ),
    "a privileged container can reach all GPUs": (
        f"!{_REQUESTS_GPU} || "
        "!object.spec.containers.exists(c, c.?securityContext.?privileged.orValue(false))"
    ),
}


def _in_cel(value: Any) -> str:
    """Return JSON as CEL, which wants all values of a map to be of one type."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)}: dyn({_in_cel(v)})' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_in_cel, value))}]"
    return json.dumps(value)


def _addition(path: str, value: Any, unless: str) -> dict[str, Any]:
    """Return the mutation that adds a value to a pod which asks for GPUs."""
    patch = f'[JSONPatch{{op: "add", path: "{path}", value: {_in_cel(value)}}}]'
    expression = f"!{_REQUESTS_GPU} || {unless} ? [] : {patch}"
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


_HAS_TOLERATION = f"object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue('') == '{GPU}')"
_AFFINITY = {"nodeAffinity": {PREFERRED: [PREFERENCE]}}


def _kyverno_policies(namespace: str) -> list[list[dict[str, Any]]]:
    def policy(kind: str, name: str, **spec: Any) -> dict[str, Any]:
        selector = {"matchLabels": {NAME_LABEL: namespace}}
        constraints = {"resourceRules": [_PODS], "namespaceSelector": selector}
        return {
            "apiVersion": "policies.kyverno.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"matchConstraints": constraints, **spec},
        }

    patches = [
        _addition("/spec/tolerations/-", TOLERATION, _HAS_TOLERATION),
        _addition("/spec/affinity", _AFFINITY, "has(object.spec.affinity)"),
    ]
    validations = [
        {"expression": expression, "message": message}
        for message, expression in _VALIDATIONS.items()
    ]
    return [
        [
            policy("MutatingPolicy", "gpu-placement", mutations=patches),
            policy(
                "ValidatingPolicy",
                "gpu-bypass",
                validationActions=["Deny"],
                validations=validations,
            ),
        ]
    ]


_REGO = f"""\
package gpubypass

violation[{{"msg": msg}}] {{
  c := input.review.object.spec.containers[_]
  c.env[_].name == "{VARIABLE}"
  not c.resources.limits["{GPU}"]
  msg := sprintf("{VARIABLE} is set by container %v, which asks for no GPU", [c.name])
}}

violation[{{"msg": msg}}] {{
  refused := {json.dumps(REFUSED_PATHS)}
  path := input.review.object.spec.volumes[_].hostPath.path
  startswith(path, refused[_])
  msg := sprintf("%v of the node is not for pods", [path])
}}

violation[{{"msg": msg}}] {{
  input.review.object.spec.containers[_].resources.limits["{GPU}"]
  c := input.review.object.spec.containers[_]
  c.securityContext.privileged
  msg := sprintf("the privileged container %v can reach all GPUs", [c.name])
}}
"""


def _gatekeeper_policies(namespace: str) -> list[list[dict[str, Any]]]:
    def mutator(kind: str, name: str, location: str, parameters: Any) -> dict[str, Any]:
        pods = {"groups": [""], "kinds": ["Pod"], "versions": ["v1"], "operations": ["CREATE"]}
        match = {"scope": "Namespaced", "namespaces": [namespace]}
        return {
            "apiVersion": "mutations.gatekeeper.sh/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {
                "applyTo": [pods],
                "match": match,
                "location": location,
                "parameters": parameters,
            },
        }

    affinity = f"spec.affinity.nodeAffinity.{PREFERRED}"
    template = {
        "apiVersion": "templates.gatekeeper.sh/v1",
        "kind": "ConstraintTemplate",
        "metadata": {"name": "gpubypass"},
        "spec": {
            "crd": {"spec": {"names": {"kind": "GpuBypass"}}},
            "targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": _REGO}],
        },
    }
    constraint = {
        "apiVersion": "constraints.gatekeeper.sh/v1beta1",
        "kind": "GpuBypass",
        "metadata": {"name": "gpu-bypass"},
        "spec": {
            "match": {
                "kinds": [{"apiGroups": [""], "kinds": ["Pod"]}],
                "namespaces": [namespace],
            }
        },
    }
    added = {"values": {"fromList": [TOLERATION]}}
    assigned = {"assign": {"value": [PREFERENCE]}}
    return [
        [
            mutator("ModifySet", "gpu-toleration", "spec.tolerations", added),
            mutator("Assign", "gpu-affinity", affinity, assigned),
            template,
        ],
        [constraint],  # of the kind that the template defines
    ]


PEERS = (
    Peer("kyverno", kyverno, KYVERNO, _kyverno_policies),
    Peer("gatekeeper", gatekeeper, GATEKEEPER, _gatekeeper_policies),
)
