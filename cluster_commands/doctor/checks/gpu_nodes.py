"""Nodes that are labelled as GPU nodes, and whether they offer GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.doctor.facts import Facts, by_name, why_missing
from cluster.source.objects import Object
from cluster_commands.doctor.rows import Row, names, not_known, ok, wrong
from cluster_commands.source.resources import NODES, PODS, SLICES
from rules.base.json_access import as_object, as_text
from rules.base.words import matches_any
from rules.profile.profile import Profile

_CHECK = "GPU nodes"
_REMEDY = (
    "see whether the device plugin runs there and what it logs: "
    "kubectl get pods -A --field-selector spec.nodeName=NODE"
)

_DRIVER_REMEDY = (
    "if it stays so, see what the DRA driver logs: it replaces the slices of a pool one by one"
)


def check_gpu_nodes(facts: Facts) -> Iterator[Row]:
    """One row for the nodes that offer GPUs, and one for those that should and do not.

    Also one for each pool of devices that is not known as a whole.
    """
    if row := why_missing(facts, _CHECK, NODES):
        yield row
        return
    if facts.usage is None and (row := why_missing(facts, _CHECK, PODS)):
        yield row  # what nodes offer is counted together with what pods hold
        return
    profile = facts.policy.profile
    for text in facts.usage.unknown if facts.usage else ():
        yield not_known(_CHECK, "ResourceSlices", text, _DRIVER_REMEDY)
    usages = facts.usage.nodes if facts.usage else ()
    offering = [node.name for node in usages if any(used.total for used in node.resources)]
    known = set(offering)
    empty = [
        f"{name} ({label})"
        for name, node in by_name(facts.objects(NODES))
        if name not in known and (label := _gpu_label(node, profile))
    ]
    if empty and (row := why_missing(facts, _CHECK, SLICES)):
        yield row  # their GPUs may be devices of drivers, in ResourceSlices
    elif empty:
        message = "labelled as GPU nodes, and offer no GPU"
        yield wrong(_CHECK, names(empty), message, _REMEDY)
    if offering:
        yield ok(_CHECK, names(offering), f"nodes that offer GPUs: {len(offering):,}")
    elif not empty:
        remedy = "name your platform's profile in a policy: docs/profiles.md"
        yield not_known(_CHECK, "all", "no node offers a GPU that gpuward knows", remedy)


def _gpu_label(node: Object, profile: Profile) -> str:
    """The first label of a node that means that it has GPUs; empty if none does."""
    labels = as_object(as_object(node.get("metadata")).get("labels"))
    for key, value in labels.items():
        values = profile.label_values(key)
        if values is not None and (not values or matches_any(values, as_text(value))):
            return f"{key}={value}"
    return ""
