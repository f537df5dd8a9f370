"""What an audit reads: what API servers send to the webhook, what it sees alone, and facts."""

from __future__ import annotations

from cluster.source.objects import ResourceNames
from webhook.registration import BUILT_IN_WORKLOADS, CUSTOM_WORKLOADS

# What limits pods, what they refer to, and what says which of them are sent to the webhook. Not
# ConfigMaps: nobody should need to read them all.
REFERRED: ResourceNames = {
    "": ("limitranges", "namespaces", "nodes", "resourcequotas"),
    "admissionregistration.k8s.io": ("validatingwebhookconfigurations",),
    "kueue.x-k8s.io": ("clusterqueues", "localqueues"),
    "node.k8s.io": ("runtimeclasses",),
    "resource.k8s.io": ("deviceclasses", "resourceclaims", "resourceclaimtemplates"),
}
# Of these, what is evaluated as it is read: no rule about these kinds needs facts, and the webhook
# is not sent them. Quotas, LimitRanges and claims do need facts. They are listed again when all
# facts are known: to keep them until then takes memory without bound, as tenants make claims.
EVALUATED_WITH_FACTS = frozenset({("", "Node"), ("kueue.x-k8s.io", "ClusterQueue")})
# Owners come before their pods, as findings are reported at owners.
EVALUATED: ResourceNames = {
    **CUSTOM_WORKLOADS,
    "resource.k8s.io": ("resourceclaims", "resourceclaimtemplates"),
    **{group: names for group, names in BUILT_IN_WORKLOADS.items() if group},
    "": (*BUILT_IN_WORKLOADS[""], "limitranges", "resourcequotas", "pods"),
}
# Evaluated too, unless the audit is of one namespace.
CLUSTER_SCOPED: ResourceNames = {"kueue.x-k8s.io": ("cohorts", "resourceflavors")}
