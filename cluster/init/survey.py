"""What a cluster says about its GPUs, as far as the policy and the chart depend on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from cluster.source.objects import MissingRightError, NotServedError, Object, ObjectSource, Resource
from cluster_commands.init.objects import (
    Node,
    Workload,
    account_of,
    namespace_of,
    node_of,
    valid_name,
    workload_of,
)
from cluster_commands.source.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    MUTATING,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SLICES,
    VALIDATING,
)
from rules.base.json_access import as_object, as_objects
from rules.profile.profile import Profile

_Key = TypeVar("_Key")
_MAX_KEYS = 10_000  # different values that are counted of one kind
_OTHERS = "and others"  # no name of an account


class Survey(NamedTuple):
    """What is known of a cluster.

    - `accounts`: the service accounts of pods in the namespaces of DaemonSets, by namespace and
      name. An account that is one too many is `_OTHERS`.
    - `schedulers`: how many pods that ask for a GPU name each scheduler.
    - `runtime_classes`: handlers by name. `device_classes`: extended resources by name, or "".
    - `drivers`: how many ResourceSlices each DRA driver has.
    - `webhooks`: names of webhooks in all configurations.
    - `missing`: resources of which nothing is known, and why.
    """

    nodes: list[Node]
    daemon_sets: list[Workload]
    deployments: list[Workload]
    accounts: set[tuple[str, str]]
    schedulers: Counter[str]
    runtime_classes: dict[str, str]
    device_classes: dict[str, str]
    drivers: Counter[str]
    webhooks: set[str]
    missing: dict[Resource, str]


def survey(source: ObjectSource, profile: Profile, *, from_files: bool) -> Survey:
    """List everything that matters; `profile` says which resources are GPUs.

    What files do not contain is not known to be absent. Names that no API server accepts are
    ignored. Raises SourceError if the source cannot be read.
    """
    missing: dict[Resource, str] = {}

    def each(resource: Resource) -> Iterator[Object]:
        is_empty = True
        try:
            for item in source.list(resource):
                is_empty = False
                yield item
        except MissingRightError:
            missing[resource] = f"needs the right to list {resource}"
        except NotServedError:
            return  # there can be none
        if is_empty and from_files:
            missing[resource] = f"the files contain no {resource.kind}"

    daemon_sets = sorted(filter(None, map(workload_of, each(DAEMON_SETS))))
    homes = {workload.namespace for workload in daemon_sets}
    accounts, schedulers = _of_pods(each(PODS), profile, homes)
    drivers: Counter[str] = Counter()
    for item in each(SLICES):
        if driver := valid_name(as_object(item.get("spec")).get("driver")):
            _count(drivers, driver)
    return Survey(
        nodes=sorted(filter(None, map(node_of, each(NODES))), key=lambda node: node.name),
        daemon_sets=daemon_sets,
        deployments=sorted(filter(None, map(workload_of, each(DEPLOYMENTS)))),
        accounts=accounts,
        schedulers=schedulers,
        runtime_classes=_by_name(each(RUNTIME_CLASSES), lambda item: item.get("handler")),
        device_classes=_by_name(
            each(DEVICE_CLASSES),
            lambda item: as_object(item.get("spec")).get("extendedResourceName"),
        ),
        drivers=drivers,
        webhooks={
            name
            for resource in (MUTATING, VALIDATING)
            for item in each(resource)
            for _, entry in as_objects(item.get("webhooks"))
            if (name := valid_name(entry.get("name")))
        },
        missing=missing,
    )


def _of_pods(
    pods: Iterable[Object], profile: Profile, homes: set[str]
) -> tuple[set[tuple[str, str]], Counter[str]]:
    """`accounts` and `schedulers` of the survey; of accounts, those in the namespaces `homes`."""
    accounts: set[tuple[str, str]] = set()
    schedulers: Counter[str] = Counter()
    for pod in pods:
        spec = as_object(pod.get("spec"))
        if (namespace := namespace_of(pod)) in homes:
            account = account_of(spec) if len(accounts) < _MAX_KEYS else _OTHERS
            accounts.add((namespace, account))
        if any(profile.resource(name) for name in _requested(spec)):
            _count(schedulers, valid_name(spec.get("schedulerName")) or "default-scheduler")
    return accounts, schedulers


def _requested(spec: Mapping[str, Any]) -> Iterator[str]:
    for _, container in as_objects(spec.get("containers")):
        yield from as_object(as_object(container.get("resources")).get("limits"))


def _by_name(items: Iterable[Object], value: Callable[[Object], object]) -> dict[str, str]:
    found = (
        (valid_name(as_object(i.get("metadata")).get("name")), valid_name(value(i))) for i in items
    )
    return dict(sorted(islice((pair for pair in found if pair[0]), _MAX_KEYS)))


def _count(counter: Counter[_Key], key: _Key) -> None:
    if key in counter or len(counter) < _MAX_KEYS:
        counter[key] += 1
