"""Facts about a cluster that an audit needs besides the objects that it evaluates."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cluster.source.objects import (
    GPU_EXCEPTIONS,
    NAMESPACES,
    NODES,
    VALIDATING,
    ListError,
    NotServedError,
    Object,
    ObjectSource,
    ResourceNames,
    SourceError,
)
from cluster.source.registered import (
    is_excluded,
    is_own,
    is_unexpectedly_not_sent,
    registered_mode,
)
from policies.gpu_exceptions import acceptances
from policies.policy import Policy
from rules.base.json_values import as_object, as_text
from rules.inventory.inventory import EMPTY_INVENTORY, Inventory
from rules.profile.profile import Profile
from rules.workloads.referred_objects import add_objects, new_builder
from webhook.registration import BUILT_IN_WORKLOADS, CUSTOM_WORKLOADS, MODE_LABEL, SYSTEM_NAMESPACES

# What limits pods, what they refer to, and what says which of them are sent to the webhook. Not
# ConfigMaps: no account should need the right to read them all.
REFERRED: ResourceNames = {
    "": ("limitranges", "namespaces", "nodes", "resourcequotas"),
    "admissionregistration.k8s.io": ("validatingwebhookconfigurations",),
    "kueue.x-k8s.io": ("clusterqueues", "localqueues", "resourceflavors"),
    "node.k8s.io": ("runtimeclasses",),
    "resource.k8s.io": ("deviceclasses", "resourceclaims", "resourceclaimtemplates"),
    "scheduling.volcano.sh": ("queues",),
}
# Of these, what is evaluated as it is read: no rule about these kinds needs facts, and the webhook
# is not sent them. Quotas, LimitRanges and claims do need facts. They are listed again when all
# facts are known: to keep them until then takes memory without bound, as tenants make claims.
EVALUATED_WITH_FACTS = frozenset(
    {("", "Node"), *(("kueue.x-k8s.io", kind) for kind in ("ClusterQueue", "ResourceFlavor"))}
)
# Owners come before their pods, as findings are reported at owners.
EVALUATED: ResourceNames = {
    **CUSTOM_WORKLOADS,
    "resource.k8s.io": ("resourceclaims", "resourceclaimtemplates"),
    "scheduling.alibabacloud.com": ("resourcepolicies",),
    **{group: names for group, names in BUILT_IN_WORKLOADS.items() if group},
    "": (*BUILT_IN_WORKLOADS[""], "limitranges", "resourcequotas", "pods"),
}
# Evaluated too, unless the audit is of one namespace.
CLUSTER_SCOPED: ResourceNames = {
    "kueue.x-k8s.io": ("cohorts",),
    "resource.k8s.io": ("deviceclasses", "devicetaintrules"),
}
EVALUATED_EVERYWHERE: ResourceNames = {
    group: (*EVALUATED.get(group, ()), *CLUSTER_SCOPED.get(group, ()))
    for group in (*EVALUATED, *(CLUSTER_SCOPED.keys() - EVALUATED.keys()))
}
"""Everything that is evaluated, unless the audit is of one namespace."""


_Labels = Mapping[str, Any]


class AuditFacts(NamedTuple):
    """Facts about a cluster.

    - `gpu_nodes`: the nodes that have GPUs, by a resource or a label; None if they are not known.
    - `namespaces`: the labels of each namespace; None if they are not known.
    - `configurations`: the validating webhook configurations of gpuward; none if it is not
      installed, or if that is not known.
    - `inventory`: what pods refer to, and what limits them.
    """

    gpu_nodes: frozenset[str] | None = None
    namespaces: Mapping[str, _Labels] | None = None
    configurations: tuple[Object, ...] = ()
    inventory: Inventory = EMPTY_INVENTORY

    def lacks_namespace(self, name: str | None) -> bool:
        """Return whether the namespaces are known, and this is none of them."""
        return bool(name) and self.namespaces is not None and name not in self.namespaces

    def mode_of(self, namespace: str) -> str:
        """The mode of a namespace; empty if it is excluded, or has no label that says it."""
        labels = self._labels(namespace)
        if not self.configurations:
            return as_text(labels.get(MODE_LABEL))
        return registered_mode(self.configurations, namespace, labels)

    def is_excluded(self, namespace: str) -> bool:
        """Return whether API servers send nothing of a namespace, whatever mode it chooses."""
        if namespace in SYSTEM_NAMESPACES:
            return True
        known = self.configurations
        return bool(known) and is_excluded(known, namespace, self._labels(namespace))

    def excluded(self) -> list[str]:
        """The known namespaces that are excluded, but for those of Kubernetes itself."""
        known = [name for name in self.namespaces or () if name not in SYSTEM_NAMESPACES]
        return sorted(name for name in known if self.is_excluded(name))

    def unexpectedly_not_sent(self) -> list[str]:
        """The namespaces that are not sent to gpuward, although nothing excludes them."""
        if not self.configurations:
            return []
        return sorted(
            name
            for name, labels in (self.namespaces or {}).items()
            if name not in SYSTEM_NAMESPACES
            and is_unexpectedly_not_sent(self.configurations, name, labels)
        )

    def _labels(self, namespace: str) -> _Labels:
        return (self.namespaces or {}).get(namespace, {})


def read_facts(
    source: ObjectSource,
    profile: Profile,
    namespace: str | None,
    on_error: Callable[[SourceError], object],
    on_evaluated: Callable[[Object], object],
) -> AuditFacts:
    """Read the facts that matter for `namespace`, or for all.

    What cannot be read is given to `on_error`, and each object of EVALUATED_WITH_FACTS, which is
    read here alone, to `on_evaluated`. ConfigMaps are known only from files: the right to read all
    of a cluster is a strong one.
    """
    builder = new_builder(profile)
    nodes: dict[str, bool] = {}
    namespaces: dict[str, _Labels] = {}
    configurations: list[Object] = []
    unlisted: set[str] = set()

    def failed(error: SourceError) -> None:
        # An error of files says nothing about what they have, and what comes after it is not read.
        resources = [error.resource] if isinstance(error, ListError) else [NODES, NAMESPACES]
        unlisted.update(resource.kind for resource in resources)
        on_error(error)

    for raw in source.list_all(REFERRED, namespace, failed):
        add_objects(builder, raw, None)
        metadata, kind = as_object(raw.get("metadata")), kind_of(raw)
        name = as_text(metadata.get("name"))
        if kind == ("", NODES.kind):
            nodes[name] = bool(builder.gpu_nodes.sign(raw))
        elif kind == ("", NAMESPACES.kind):
            namespaces[name] = as_object(metadata.get("labels"))
        elif kind == (VALIDATING.group, VALIDATING.kind) and is_own(raw):
            configurations.append(raw)
        if kind in EVALUATED_WITH_FACTS:
            on_evaluated(raw)
    if missing := builder.message_about_missing_objects():
        on_error(SourceError(missing))
    knows_nodes = nodes and NODES.kind not in unlisted
    knows_namespaces = namespaces and NAMESPACES.kind not in unlisted
    return AuditFacts(
        frozenset(name for name in nodes if nodes[name]) if knows_nodes else None,
        namespaces if knows_namespaces else None,
        tuple(configurations),
        builder.inventory(),
    )


def kind_of(raw: Object) -> tuple[str, str]:
    """The API group and the kind of an object."""
    return as_text(raw.get("apiVersion")).rpartition("/")[0], as_text(raw.get("kind"))


def namespace_of(item: Object) -> str:
    """The namespace that an object names; empty if it names none."""
    return as_text(as_object(item.get("metadata")).get("namespace"))


def with_gpu_exceptions(
    policy: Policy,
    source: ObjectSource,
    namespace: str | None,
    today: datetime.date,
    on_error: Callable[[SourceError], object],
) -> Policy:
    """`policy` with the GpuExceptions of `namespace`, or of all, that it accepts `today`.

    They are listed only if the policy allows them; without the definition of the kind
    there are none. What cannot be read is given to `on_error`.
    """
    if not policy.gpu_exception_limits:
        return policy
    listed = source.list(GPU_EXCEPTIONS, namespace)
    accepted = []
    try:
        for _, found in acceptances(listed, policy, today):
            if found.is_accepted and found.exception is not None:
                accepted.append(found.exception)
    except NotServedError:
        pass
    except SourceError as error:
        on_error(error)
    return policy._replace(exceptions=(*policy.exceptions, *accepted))


class Identity(NamedTuple):
    """The version of its API, and what tells it from an earlier object of the same name."""

    api_version: str
    uid: str


def identity_of(raw: Object) -> Identity:
    """The identity of an object."""
    uid = as_text(as_object(raw.get("metadata")).get("uid"))
    return Identity(as_text(raw.get("apiVersion")), uid)
