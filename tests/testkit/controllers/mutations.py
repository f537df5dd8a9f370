"""What Kyverno and Gatekeeper are told to change in pods, as their own documents write it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.testkit.control_plane.build import Programs, gatekeeper, kyverno
from tests.testkit.controllers.controller import Recipe
from tests.testkit.controllers.recipes import GATEKEEPER, KYVERNO

TEAM, POOL, REGISTRY = ("team", "research"), ("pool", "gpus"), "mirror.example"
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
# Pods with this label get a variable that makes NVIDIA's runtime give them all GPUs.
SEES_GPUS = ("sees", "gpus")
_VARIABLE = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


@dataclass(frozen=True)
class Engine:
    """A policy engine: how it is built and run, and what it is told.

    API servers call mutating webhooks in the order of the names of their configurations. A name
    that begins with `before` comes before the engine's, and one with `after` comes after it.
    """

    build: Callable[[], Programs]
    recipe: Recipe
    policies: list[dict[str, Any]]
    before: str
    after: str


def _cluster_policy(name: str, mutate: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A ClusterPolicy of Kyverno with one rule for pods."""
    rule = {
        "name": name,
        "match": {"any": [{"resources": {"kinds": ["Pod"], **fields.pop("resources", {})}}]},
        **fields,
        "mutate": mutate,
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"rules": [rule]},
    }


_ADD_TOLERATION = """
- op: add
  path: /spec/tolerations/-
  value: {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
"""
_NO_TOLERATION = {
    "key": "nvidia.com/gpu",
    "operator": "NotIn",
    "value": "{{ request.object.spec.tolerations[].key || `[]` }}",
}
_IMAGE = f"{{{{ regex_replace_all_literal('^[^/]+', '{{{{element.image}}}}', '{REGISTRY}') }}}}"
_ADD_NODE_SELECTOR = f"""
has(object.spec.nodeSelector)
? [JSONPatch{{op: "add", path: "/spec/nodeSelector/{POOL[0]}", value: "{POOL[1]}"}}]
: [JSONPatch{{op: "add", path: "/spec/nodeSelector", value: {{"{POOL[0]}": "{POOL[1]}"}}}}]
"""
_KYVERNO_POLICIES = [
    _cluster_policy("add-labels", {"patchStrategicMerge": {"metadata": {"labels": dict([TEAM])}}}),
    _cluster_policy(
        "add-tolerations",
        {"patchesJson6902": _ADD_TOLERATION},
        preconditions={"all": [_NO_TOLERATION]},
    ),
    _cluster_policy(
        "replace-image-registry",
        {
            "foreach": [
                {
                    "list": "request.object.spec.containers",
                    "patchStrategicMerge": {
                        "spec": {"containers": [{"name": "{{ element.name }}", "image": _IMAGE}]}
                    },
                }
            ]
        },
    ),
    _cluster_policy(
        "show-gpus",
        {
            "patchStrategicMerge": {
                "spec": {"containers": [{"(name)": "*", "env": [dict(_VARIABLE)]}]}
            }
        },
        resources={"selector": {"matchLabels": dict([SEES_GPUS])}},
    ),
    # The kind that takes the place of ClusterPolicies.
    {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "MutatingPolicy",
        "metadata": {"name": "add-node-selector"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {"expression": _ADD_NODE_SELECTOR},
                }
            ],
        },
    },
]


def _mutator(
    kind: str, name: str, location: str, parameters: dict[str, Any], **match: Any
) -> dict[str, Any]:
    """A mutator of Gatekeeper for pods."""
    pods = {"groups": [""], "kinds": ["Pod"], "versions": ["v1"], "operations": ["CREATE"]}
    applies: dict[str, Any] = {"match": {"scope": "Namespaced", **match}}
    if kind == "AssignMetadata":
        applies["match"]["kinds"] = [{"apiGroups": [""], "kinds": ["Pod"]}]
    else:
        applies["applyTo"] = [pods]
    version = "v1alpha1" if kind == "AssignImage" else "v1"
    return {
        "apiVersion": f"mutations.gatekeeper.sh/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**applies, "location": location, "parameters": parameters},
    }


_GATEKEEPER_POLICIES = [
    _mutator(
        "AssignMetadata",
        "add-label",
        f"metadata.labels.{TEAM[0]}",
        {"assign": {"value": TEAM[1]}},
    ),
    _mutator(
        "ModifySet", "add-toleration", "spec.tolerations", {"values": {"fromList": [TOLERATION]}}
    ),
    _mutator(
        "AssignImage",
        "replace-image-registry",
        "spec.containers[name: *].image",
        {"assignDomain": REGISTRY},
    ),
    _mutator(
        "Assign",
        "add-node-selector",
        f"spec.nodeSelector.{POOL[0]}",
        {"assign": {"value": POOL[1]}},
    ),
    _mutator(
        "Assign",
        "show-gpus",
        f"spec.containers[name: *].env[name: {_VARIABLE['name']}].value",
        {"assign": {"value": _VARIABLE["value"]}},
        labelSelector={"matchLabels": dict([SEES_GPUS])},
    ),
]
ENGINES = {
    "kyverno": Engine(kyverno, KYVERNO, _KYVERNO_POLICIES, before="gpuward-", after="z-gpuward-"),
    "gatekeeper": Engine(
        gatekeeper, GATEKEEPER, _GATEKEEPER_POLICIES, before="a-gpuward-", after="gpuward-"
    ),
}
