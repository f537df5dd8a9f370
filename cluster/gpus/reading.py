"""What the account is made of: the objects of a cluster, and what could not be read of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cluster.gpus.accounting import PodSize, account
from cluster.gpus.usage import Usage, notes_on_cards_offered_twice
from cluster.source.objects import (
    CLAIMS,
    NODES,
    PODS,
    SLICES,
    MissingRightError,
    NotServedError,
    Object,
    ObjectSource,
    Resource,
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
    nodes: Iterable[Object] = () if namespace else _readable(source, NODES, None, missing)
    usage = account(
        nodes,
        source.list(PODS, namespace),
        slices=_readable(source, SLICES, None, missing),
        claims=_readable(source, CLAIMS, namespace, missing),
        profile=profile,
        pod_size=pod_size,
    )
    return Reading(usage, (*missing, *usage.unknown, *notes_on_cards_offered_twice(usage.nodes)))


def _readable(
    source: ObjectSource, resource: Resource, namespace: str | None, missing: list[str]
) -> Iterator[Object]:
    """The objects of a resource; none if the account may not list it, which is then `missing`."""
    try:
        yield from source.list(resource, namespace)
    except NotServedError:
        return
    except MissingRightError as error:
        missing.append(str(error))
