"""Facts about a cluster that an audit needs besides the objects that it evaluates."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cluster.snapshot.snapshot import NotInFilesError, Snapshot
from cluster.source.objects import (
    CLAIM_TEMPLATES,
    CLAIMS,
    CLUSTER_QUEUES,
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    DEVICE_CLASSES,
    GPU_EXCEPTIONS,
    KAI_QUEUES,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    NVIDIA_DRIVERS,
    QUOTAS,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    SECRETS,
    TOPOLOGIES,
    TRAINING_RUNTIMES,
    VALIDATING,
    VOLCANO_QUEUES,
    NotServedError,
    Object,
    Resource,
    ResourceNames,
    SourceError,
    name_of,
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

# What limits pods, what they refer to, and what says which of them are sent to the webhook.
# Flavors come before their nodes.
REFERRED = (
    *(LIMIT_RANGES, NAMESPACES, RESOURCE_FLAVORS, TOPOLOGIES, NODES, QUOTAS, VALIDATING),
    *(
        CLUSTER_QUEUES,
        LOCAL_QUEUES,
        RUNTIME_CLASSES,
        DEVICE_CLASSES,
        CLAIMS,
        CLAIM_TEMPLATES,
        VOLCANO_QUEUES,
        TRAINING_RUNTIMES,
        CLUSTER_TRAINING_RUNTIMES,
        KAI_QUEUES,
    ),
)
# Read from files alone: no account should need the right to read them all.
REFERRED_IN_FILES = (CONFIG_MAPS, SECRETS, NVIDIA_DRIVERS)
# Of these, what is evaluated as it is read: no rule about these kinds needs facts, and the webhook
# is not sent them. Quotas, LimitRanges and claims do need facts. They are listed again when all
# facts are known: to keep them until then takes memory without bound, as tenants make claims.
EVALUATED_WITH_FACTS = frozenset(
    (resource.group, resource.kind) for resource in (NODES, CLUSTER_QUEUES, RESOURCE_FLAVORS)
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
    "trainer.kubeflow.org": ("clustertrainingruntimes",),
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
    snapshot: Snapshot,
    profile: Profile,
    namespace: str | None,
    on_error: Callable[[SourceError], object],
    on_evaluated: Callable[[Object], object],
) -> AuditFacts:
    """Read the facts that matter for `namespace`, or for all.

    What cannot be read is given to `on_error`, and each object of EVALUATED_WITH_FACTS, which is
    read here alone, to `on_evaluated`.
    """
    builder = new_builder(profile)
    in_files = () if snapshot.source.is_complete else REFERRED_IN_FILES
    gpu_nodes: set[str] = set()
    configurations: list[Object] = []
    namespaces: dict[str, _Labels] = {}
    known: set[Resource] = set()
    for resource in (*REFERRED, *in_files):
        home = namespace if resource.is_namespaced else None
        for raw in snapshot.stream(resource, home):
            known.add(resource)
            add_objects(builder, raw, None)
            if resource == NODES and builder.gpu_nodes.has(raw):
                gpu_nodes.add(name_of(raw))
            elif resource == NAMESPACES:
                namespaces[name_of(raw)] = as_object(as_object(raw.get("metadata")).get("labels"))
            elif resource == VALIDATING and is_own(raw):
                configurations.append(raw)
            if kind_of(raw) in EVALUATED_WITH_FACTS:
                on_evaluated(raw)
    for error in snapshot.missing.values():
        if not isinstance(error, NotServedError | NotInFilesError):
            on_error(error)
    known -= snapshot.missing.keys()
    if missing := builder.message_about_missing_objects():
        on_error(SourceError(missing))
    return AuditFacts(
        gpu_nodes=frozenset(gpu_nodes) if NODES in known else None,
        namespaces=namespaces if NAMESPACES in known else None,
        configurations=tuple(configurations),
        inventory=builder.inventory(),
    )


def kind_of(raw: Object) -> tuple[str, str]:
    """The API group and the kind of an object."""
    return as_text(raw.get("apiVersion")).rpartition("/")[0], as_text(raw.get("kind"))


def with_gpu_exceptions(
    policy: Policy, snapshot: Snapshot, namespace: str | None, today: datetime.date
) -> Policy:
    """`policy` with the GpuExceptions of `namespace`, or of all, that it accepts `today`.

    They are listed only if the policy allows them.
    """
    if not policy.gpu_exception_limits:
        return policy
    accepted = (
        found.exception
        for _, found in acceptances(snapshot.stream(GPU_EXCEPTIONS, namespace), policy, today)
        if found.is_accepted and found.exception is not None
    )
    return policy._replace(exceptions=(*policy.exceptions, *accepted))


class Identity(NamedTuple):
    """The version of its API, and what tells it from an earlier object of the same name."""

    api_version: str
    uid: str


def identity_of(raw: Object) -> Identity:
    """The identity of an object."""
    uid = as_text(as_object(raw.get("metadata")).get("uid"))
    return Identity(as_text(raw.get("apiVersion")), uid)
