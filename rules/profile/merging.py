"""Merge the profiles that a policy chooses into one."""

from __future__ import annotations

from collections.abc import Iterable

from rules.profile.profile import SYSTEM_NAMESPACE, Profile, union
from rules.profile.records import Resource


def merge_profiles(chosen: Iterable[Profile], known: Iterable[Profile]) -> Profile:
    """The facts of all `chosen` profiles together, aware of the resources of all `known`.

    Raises ValueError if two chosen profiles claim one resource: whose scheduler, taint and
    label should a pod get?
    """
    chosen, known = tuple(chosen), tuple(known)
    active = _disjoint_resources(chosen)
    # The first of several matching patterns decides, so the chosen profiles come first.
    everything: dict[str, Resource] = {}
    for profile in (*chosen, *known):
        for name, resource in profile.resources.items():
            everything.setdefault(name, resource)
    variables = {v.name: v for p in (*known, *chosen) for v in p.visible_devices.values()}
    labels = _labels(chosen)
    for key, values in _labels(known).items():
        labels.setdefault(key, values)
    return Profile(
        name="+".join(p.name for p in chosen),
        resources=everything,
        active=active,
        taints=tuple(t for p in chosen for t in p.taints),
        affinities=tuple(a for p in chosen for a in p.affinities),
        schedulers=tuple(s for p in chosen for s in p.schedulers),
        components=(
            *(c for p in chosen for c in p.components),
            # Whoever may create pods in kube-system owns the cluster, and every platform installs
            # components there.
            *(c for p in known for c in p.components if c.namespaces == (SYSTEM_NAMESPACE,)),
        ),
        node_labels=labels,
        node_modes={k: m for p in (*known, *chosen) for k, m in p.node_modes.items()},
        runtime_classes=union(p.runtime_classes for p in (*known, *chosen)),
        visible_devices=variables,
        alternative_variables=union(p.alternative_variables for p in (*known, *chosen)),
        chosen_alternatives=union(p.alternative_variables for p in chosen),
        injected_references=tuple(r for p in chosen for r in p.injected_references),
        fractions=tuple(f for p in chosen for f in p.fractions),
        limit_quotas=union(p.limit_quotas for p in chosen),
    )


def _labels(profiles: Iterable[Profile]) -> dict[str, tuple[str, ...]]:
    """The labels of all `profiles`; clouds share some of them, each with values of its own."""
    labels: dict[str, tuple[str, ...]] = {}
    for profile in profiles:
        for key, values in profile.node_labels.items():
            before = labels.get(key, values)
            labels[key] = union((before, values)) if before and values else ()
    return labels


def _disjoint_resources(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """The resources of all `profiles`, each described by one of them only."""
    owners: dict[str, str] = {}
    for profile in profiles:
        for name in profile.resources:
            if name in owners:
                raise ValueError(
                    f"profiles {owners[name]!r} and {profile.name!r} both describe the "
                    f"resource {name!r}: choose one of them"
                )
            owners[name] = profile.name
    return tuple(owners)
