"""The facts about a cluster's GPUs on which the policy and the chart depend."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from cluster.accounting.pod_requests import effective_requests
from cluster.snapshot.snapshot import Snapshot
from cluster.source.objects import (
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    MUTATING,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SLICES,
    VALIDATING,
    MissingRightError,
    NotServedError,
    Object,
    ObjectReader,
    Resource,
    is_device_plugin,
)
from rules.base.json_values import as_object, as_objects, as_text
from rules.base.taints import is_temporary_taint
from rules.gpu.components import every_version
from rules.profile.profile import Profile, Taint

# The few fields that are kept of an object of a cluster; names that are not valid are dropped.

# What API servers accept as a name, a label, or a resource; files may contain anything else.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,316}\Z")


class Node(NamedTuple):
    """A node: its name, labels and lasting taints, and the names of its extended resources."""

    name: str
    labels: Mapping[str, str]
    taints: frozenset[Taint]
    resources: frozenset[str]


class Workload(NamedTuple):
    """A DaemonSet or Deployment, with the account and the images of its pods.

    Images are patterns of every version; one that no pattern names well is empty.
    """

    name: str
    namespace: str
    service_account: str
    is_device_plugin: bool
    images: tuple[str, ...] = ()


def node_of(item: Object) -> Node | None:
    """The node; None if its name is none."""
    metadata = as_object(item.get("metadata"))
    name = valid_name(metadata.get("name"))
    labels = {
        key: value
        for key, given in as_object(metadata.get("labels")).items()
        if valid_name(key) and (value := as_text(given)) in {valid_name(value), ""}
    }
    status = as_object(item.get("status"))
    resources = (
        key for key, amount in as_object(status.get("allocatable")).items() if str(amount) != "0"
    )
    extended = frozenset(key for key in resources if "/" in key and valid_name(key))
    found = as_objects(as_object(item.get("spec")).get("taints"))
    taints = frozenset(filter(None, (_taint(taint) for _, taint in found)))
    return Node(name, labels, taints, extended) if name else None


def _taint(raw: Mapping[str, Any]) -> Taint | None:
    key, value, effect = (as_text(raw.get(field)) for field in ("key", "value", "effect"))
    if is_temporary_taint(key):
        return None
    if not valid_name(key) or (value and not valid_name(value)):
        return None
    if effect not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
        return None
    return Taint((), key, value or None, effect)


def workload_of(item: Object) -> Workload | None:
    """The DaemonSet or Deployment; None if its name is none."""
    name = valid_name(as_object(item.get("metadata")).get("name"))
    spec = as_object(as_object(as_object(item.get("spec")).get("template")).get("spec"))
    if not name:
        return None
    lists = (as_objects(spec.get(field)) for field in ("initContainers", "containers"))
    images = {every_version(as_text(c.get("image"))) for listed in lists for _, c in listed}
    account, images_sorted = account_of(spec), tuple(sorted(images))
    return Workload(name, namespace_of(item), account, is_device_plugin(spec), images_sorted)


def namespace_of(item: Object) -> str:
    """The namespace of an object; `default` if it names none."""
    return valid_name(as_object(item.get("metadata")).get("namespace")) or "default"


def account_of(spec: Mapping[str, Any]) -> str:
    """The service account of a pod with this `spec`."""
    return valid_name(spec.get("serviceAccountName")) or "default"


def valid_name(value: object) -> str:
    """The text if an API server accepts it as a name or a value of a label, else an empty one."""
    text = as_text(value)
    return text if _NAME.match(text) else ""


_Key = TypeVar("_Key")
_MAX_KEYS = 10_000  # different values that are counted of one kind
_OTHERS = "and others"  # no name of an account


class InitFacts(NamedTuple):
    """The facts about a cluster.

    - `accounts`: the service accounts of pods in the namespaces of DaemonSets, by namespace and
      name. An account that is one too many is `_OTHERS`.
    - `schedulers`: how many pods that ask for a GPU name each scheduler.
    - `runtime_classes`: handlers by name. `device_classes`: extended resources by name, or "".
    - `drivers`: how many ResourceSlices each DRA driver has.
    - `webhooks`: names of webhooks in all configurations.
    - `missing`: resources of which nothing is known, and why; empty if no file has one.
    - `forbidden`: those of them that the account may not list.
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
    forbidden: frozenset[Resource] = frozenset()


def read_facts(source: ObjectReader, profile: Profile) -> InitFacts:
    """List everything that matters; `profile` says which resources are GPUs.

    What files do not contain is not known to be absent. Names that no API server accepts are
    ignored. Raises SourceError if the source cannot be read.
    """
    snapshot = Snapshot(source, profile)
    each = snapshot.stream
    daemon_sets = sorted(filter(None, map(workload_of, each(DAEMON_SETS))))
    homes = {workload.namespace for workload in daemon_sets}
    accounts, schedulers = _of_pods(each(PODS), profile, homes)
    drivers: Counter[str] = Counter()
    for item in each(SLICES):
        if driver := valid_name(as_object(item.get("spec")).get("driver")):
            _count(drivers, driver)
    found = InitFacts(
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
        missing={},
    )
    unread = snapshot.missing.items()
    forbidden = frozenset(each for each, error in unread if isinstance(error, MissingRightError))
    missing = {
        resource: f"needs the right to list {resource}" if resource in forbidden else ""
        for resource, error in unread
        if not isinstance(error, NotServedError)  # there can be none
    }
    return found._replace(missing=missing, forbidden=forbidden)


def _of_pods(
    pods: Iterable[Object], profile: Profile, homes: set[str]
) -> tuple[set[tuple[str, str]], Counter[str]]:
    """`accounts` and `schedulers` of the facts; of accounts, those in the namespaces `homes`."""
    accounts: set[tuple[str, str]] = set()
    schedulers: Counter[str] = Counter()
    for pod in pods:
        spec = as_object(pod.get("spec"))
        if (namespace := namespace_of(pod)) in homes:
            account = account_of(spec) if len(accounts) < _MAX_KEYS else _OTHERS
            accounts.add((namespace, account))
        if any(map(profile.resource, effective_requests(pod))):
            _count(schedulers, valid_name(spec.get("schedulerName")) or "default-scheduler")
    return accounts, schedulers


def _by_name(items: Iterable[Object], value: Callable[[Object], object]) -> dict[str, str]:
    found = (
        (valid_name(as_object(i.get("metadata")).get("name")), valid_name(value(i))) for i in items
    )
    return dict(sorted(islice((pair for pair in found if pair[0]), _MAX_KEYS)))


def _count(counter: Counter[_Key], key: _Key) -> None:
    if key in counter or len(counter) < _MAX_KEYS:
        counter[key] += 1
