"""What is kept of an object of a cluster: few fields, and only names that can be names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from cluster.source.device_plugins import is_device_plugin
from cluster.source.objects import Object
from rules.base.json_access import as_object, as_objects, as_text
from rules.profile.records import Taint

# What API servers accept as a name, a label, or a resource; files may contain anything else.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,316}\Z")
# Taints that Kubernetes, autoscalers and clouds set for a time, and no pod of a user tolerates.
_PASSING_TAINTS = (
    *("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/"),
    *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"),
    *("aws-node-termination-handler/", "cloud.google.com/impending-node-termination"),
)
# Drivers of networks and volumes, such as Cilium, remove theirs as soon as they run on the node.
_STARTUP_TAINT = "/agent-not-ready"


class Node(NamedTuple):
    """A node: its name, labels and lasting taints, and the names of its extended resources."""

    name: str
    labels: Mapping[str, str]
    taints: frozenset[Taint]
    resources: frozenset[str]


class Workload(NamedTuple):
    """A DaemonSet or Deployment, with the account of its pods."""

    name: str
    namespace: str
    service_account: str
    is_device_plugin: bool


def node_of(item: Object) -> Node | None:
    """The node; None if its name is none."""
    metadata = as_object(item.get("metadata"))
    name = valid_name(metadata.get("name"))
    labels = {
        key: value
        for key, given in as_object(metadata.get("labels")).items()
        if valid_name(key) and (value := as_text(given)) in {valid_name(value), ""}
    }
    status = as_object(item.get("status"))
    resources = (
        key for key, amount in as_object(status.get("allocatable")).items() if str(amount) != "0"
    )
    extended = frozenset(key for key in resources if "/" in key and valid_name(key))
    found = as_objects(as_object(item.get("spec")).get("taints"))
    taints = frozenset(filter(None, (_taint(taint) for _, taint in found)))
    return Node(name, labels, taints, extended) if name else None


def _taint(raw: Mapping[str, Any]) -> Taint | None:
    key, value, effect = (as_text(raw.get(field)) for field in ("key", "value", "effect"))
    if key.startswith(_PASSING_TAINTS) or key.endswith(_STARTUP_TAINT):
        return None
    if not valid_name(key) or (value and not valid_name(value)):
        return None
    if effect not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
        return None
    return Taint((), key, value or None, effect)


def workload_of(item: Object) -> Workload | None:
    """The DaemonSet or Deployment; None if its name is none."""
    name = valid_name(as_object(item.get("metadata")).get("name"))
    spec = as_object(as_object(as_object(item.get("spec")).get("template")).get("spec"))
    if not name:
        return None
    return Workload(name, namespace_of(item), account_of(spec), is_device_plugin(spec))


def namespace_of(item: Object) -> str:
    """The namespace of an object; `default` if it names none."""
    return valid_name(as_object(item.get("metadata")).get("namespace")) or "default"


def account_of(spec: Mapping[str, Any]) -> str:
    """The service account of a pod with this `spec`."""
    return valid_name(spec.get("serviceAccountName")) or "default"


def valid_name(value: object) -> str:
    """The text if an API server accepts it as a name or a value of a label, else an empty one."""
    text = as_text(value)
    return text if _NAME.match(text) else ""
