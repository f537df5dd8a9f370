"""The input of the account: the objects of a cluster, and what could not be read of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cluster.accounting.account import PodSize, account
from cluster.accounting.usage import (
    Usage,
    notes_on_cards_given_twice,
    notes_on_cards_offered_twice,
)
from cluster.source.objects import (
    CLAIMS,
    NODES,
    PODS,
    SLICES,
    Object,
    ObjectSource,
    list_readable,
)
from rules.profile.profile import Profile


class Reading(NamedTuple):
    """An account, and what it lacks: one line for each thing that is not known."""

    usage: Usage
    missing: tuple[str, ...]


def read_usage(
    source: ObjectSource, profile: Profile, pod_size: PodSize, namespace: str | None = None
) -> Reading:
    """Count the GPUs of a cluster, or of one namespace alone, without nodes.

    Raises SourceError if pods cannot be listed, or nothing can be.
    """
    missing: list[str] = []
    nodes: Iterable[Object] = (
        () if namespace else list_readable(source, NODES, None, missing.append)
    )
    usage = account(
        nodes,
        source.list(PODS, namespace),
        slices=list_readable(source, SLICES, None, missing.append),
        claims=list_readable(source, CLAIMS, namespace, missing.append),
        profile=profile,
        pod_size=pod_size,
    )
    twice = (
        *notes_on_cards_offered_twice(usage.nodes),
        *notes_on_cards_given_twice(usage.consumers),
    )
    return Reading(usage, (*missing, *usage.unknown, *twice))
