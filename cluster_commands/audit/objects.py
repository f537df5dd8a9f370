"""What an audit reads: the resources that API servers send to the webhook, and two for facts."""

from __future__ import annotations

from cluster_commands.source.objects import ResourceNames
from registration.configurations import BUILT_IN_WORKLOADS, CUSTOM_WORKLOADS

# What limits pods, or what they refer to. Not ConfigMaps: nobody should need to read them all.
REFERRED: ResourceNames = {
    "": ("limitranges", "nodes", "resourcequotas"),
    "node.k8s.io": ("runtimeclasses",),
    "resource.k8s.io": ("deviceclasses", "resourceclaims", "resourceclaimtemplates"),
}
# Owners come before their pods, as findings are reported at owners.
NAMESPACED: ResourceNames = {
    **CUSTOM_WORKLOADS,
    "resource.k8s.io": ("resourceclaims", "resourceclaimtemplates"),
    **{group: names for group, names in BUILT_IN_WORKLOADS.items() if group},
    "": (*BUILT_IN_WORKLOADS[""], "limitranges", "resourcequotas", "pods"),
}
EVALUATED: ResourceNames = {**NAMESPACED, "": ("nodes", *NAMESPACED[""])}
