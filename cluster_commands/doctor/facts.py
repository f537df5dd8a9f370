"""What the checks look at: the objects of a cluster, and why some could not be listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from cluster_commands.doctor.rows import Row, not_known
from cluster_commands.gpus.accounting import account
from cluster_commands.gpus.usage import Usage
from cluster_commands.source.objects import (
    MissingRightError,
    NotServedError,
    Object,
    ObjectSource,
    Resource,
)
from cluster_commands.source.resources import (
    DAEMON_SETS,
    ENDPOINTS,
    MUTATING,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    VALIDATING,
)
from rules.base.json_access import as_object, as_text
from rules.policy import Policy

_RESOURCES = (NODES, SLICES, MUTATING, VALIDATING, NAMESPACES, DAEMON_SETS, ENDPOINTS)

Request = Callable[[str], str]
"""Gets the text at a path of the API server. Raises ClusterError."""


class Facts(NamedTuple):
    """What is known of a cluster.

    - `listed`: the objects of each resource; a resource that could not be listed is in `missing`
      instead, with the reason.
    - `usage`: the account of its GPUs; None if pods could not be listed.
    - `request`: asks the API server for more; None if the objects are from files.
    """

    listed: Mapping[Resource, list[Object]]
    missing: Mapping[Resource, str]
    usage: Usage | None
    policy: Policy
    request: Request | None

    def objects(self, resource: Resource) -> list[Object]:
        """The objects of a resource; none if it could not be listed."""
        return self.listed.get(resource, [])


def read_facts(source: ObjectSource, policy: Policy, request: Request | None) -> Facts:
    """List everything that the checks look at.

    Without `request` the objects are from files. What is not in files is not known to be absent.
    """
    listed: dict[Resource, list[Object]] = {}
    missing: dict[Resource, str] = {}
    for resource in _RESOURCES:
        try:
            listed[resource] = list(source.list(resource))
        except (MissingRightError, NotServedError) as error:
            missing[resource] = str(error)
            continue
        if not listed[resource] and request is None:
            missing[resource] = f"the files contain no {resource.kind}"
    nodes, slices = listed.get(NODES, ()), listed.get(SLICES, ())
    usage = None
    try:
        usage = account(nodes, source.list(PODS), slices=slices, profile=policy.profile)
    except (MissingRightError, NotServedError) as error:
        missing[PODS] = str(error)
    return Facts(listed, missing, usage, policy, request)


def why_missing(facts: Facts, check: str, resource: Resource) -> Row | None:
    """The row that says that a resource is not known; None if it is."""
    if resource not in facts.missing:
        return None
    remedy = (
        f"list them too: kubectl get {resource} -A -o json"
        if facts.request is None
        else f"grant the right to list {resource}"
    )
    return not_known(check, resource.name, facts.missing[resource], remedy)


def name_of(item: Object) -> str:
    """The name of an object."""
    return as_text(as_object(item.get("metadata")).get("name"))


def by_name(items: list[Object]) -> Iterator[tuple[str, Object]]:
    """The objects with their names, in the order of the names."""
    yield from sorted(((name_of(item), item) for item in items), key=lambda pair: pair[0])
