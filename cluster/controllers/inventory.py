"""`gpuward inventory run`: keep what the webhook knows of other objects up to date."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cluster.api.errors import Object
from cluster.control_loop import Controller
from cluster.source.objects import (
    CLAIM_TEMPLATES,
    CLAIMS,
    CONFIG_MAPS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    RUNTIME_CLASSES,
    MissingRightError,
    NotServedError,
    ObjectSource,
    ResourceNames,
    SourceError,
)
from policies.controller_files import (
    CheckedInventory,
    TooLargeError,
    format_inventory,
    inventory_file_name,
    parse_inventory,
    without_largest_namespaces,
)
from policies.loading import PolicyError
from policies.policy import Policy
from rules.base.json_values import as_object
from rules.inventory.builder import InventoryBuilder
from rules.inventory.inventory import ADMIN_ACCESS_LABELS, Inventory
from rules.workloads.referred_objects import add_objects, new_builder, variables_of_runtimes

# Quotas and limits of namespaces are not listed: the API server itself compares pods with them.
ALWAYS = (RUNTIME_CLASSES, DEVICE_CLASSES, CLAIM_TEMPLATES, CLAIMS)
QUEUES: ResourceNames = {
    "kueue.x-k8s.io": ("clusterqueues", "localqueues", "resourceflavors", "topologies"),
    "scheduling.run.ai": ("queues",),
    "scheduling.volcano.sh": ("queues",),
}


class Scope(NamedTuple):
    """The resources that are listed besides ALWAYS.

    - `nodes`: compare pods with the nodes, which are all that there will be.
    - `node_names`: know GPU nodes by their names.
    - `queues`: know the queues of Kueue, Volcano and KAI, and the flavors and topologies of Kueue;
      with `nodes` also the taints of a flavor's nodes.
    - `namespaces`: know those labels of namespaces that rules read.
    """

    config_maps: bool = False
    nodes: bool = False
    node_names: bool = False
    queues: bool = False
    namespaces: bool = False


def list_inventory(
    source: ObjectSource,
    policy: Policy,
    scope: Scope,
    *,
    on_error: Callable[[SourceError], object],
) -> Inventory:
    """Return the inventory of the objects in `source`, for the rules of `policy`.

    A resource that the API server does not serve is left out, and one that the account may not
    list, which is given to `on_error`. Raises SourceError if a list cannot be read to its end: half
    of what was known would be forgotten.
    """
    variables = variables_of_runtimes(policy.profile)
    builder = new_builder(
        policy.profile,
        frozenset((*ADMIN_ACCESS_LABELS, *_keys_in_options(policy, "labels"))),
        _keys_in_options(policy, "nodes"),
    )
    # Flavors come before their nodes.
    if scope.queues:
        for raw in source.list_all(QUEUES, None, _unless_cut_short(on_error)):
            add_objects(builder, raw, None)
    chosen = (
        (CONFIG_MAPS, scope.config_maps),
        (NODES, scope.nodes or scope.node_names),
        (NAMESPACES, scope.namespaces),
    )
    unknown = []
    for resource in (*ALWAYS, *(resource for resource, is_read in chosen if is_read)):
        try:
            for raw in source.list(resource):
                if resource is NODES:
                    _add_node(builder, raw, scope)
                # Most ConfigMaps set no variable that matters, and there are many.
                elif resource is not CONFIG_MAPS or variables.read_among(
                    as_object(raw.get("data"))
                ):
                    add_objects(builder, raw, None)
        except NotServedError:
            continue
        except MissingRightError as error:
            unknown.append(resource)
            on_error(error)
    # What a device class stands for is no resource of a node, so all of them must be known too.
    builder.nodes.has_all = scope.nodes and not {NODES, DEVICE_CLASSES}.intersection(unknown)
    _report_bounds(builder, on_error)
    return builder.inventory()


def _keys_in_options(policy: Policy, option: str) -> frozenset[str]:
    """The keys of the labels that an option of the active rules lists.

    No others are kept: a user who may write a namespace can give it any number of them.
    """
    options = [active.options.get(option, ()) for active in policy.rule_set().rules]
    return frozenset(label.partition("=")[0] for labels in options for label in labels)


def _report_bounds(builder: InventoryBuilder, on_error: Callable[[SourceError], object]) -> None:
    """Give to `on_error` what an inventory has no room for."""
    if missing := builder.message_about_missing_objects():
        on_error(SourceError(missing))
    if builder.nodes.is_full:
        why = "nodes have more labels about GPUs, or GPU resources, than an inventory holds: pods"
        on_error(SourceError(f"{why} are not compared with them"))
    if builder.gpu_nodes.is_full:
        why = "there are more GPU nodes than an inventory holds the names of"
        on_error(SourceError(f"{why}: privileged pods that name one of the others are not refused"))


def _unless_cut_short(
    on_error: Callable[[SourceError], object],
) -> Callable[[SourceError], None]:
    """Return what gives a missing right to `on_error`, and raises any other error."""

    def handle(error: SourceError) -> None:
        if not isinstance(error, MissingRightError):
            raise error
        on_error(error)

    return handle


def _add_node(builder: InventoryBuilder, raw: Object, scope: Scope) -> None:
    if scope.nodes:
        builder.nodes.add(raw)
        builder.add_node_of_flavors(raw)
    if scope.node_names:
        builder.gpu_nodes.add(raw)


RENEW_SECONDS = 600.0
"""How often the files are written though nothing has changed; the webhook uses them for an hour."""
_NAMED = 5  # namespaces in a message
_STALE_SECONDS = 1800.0  # a pass through a large cluster, with attempts that fail, takes less
_log = structlog.get_logger("gpuward.inventory")


class Stored(Protocol):
    """A ConfigMap: `cluster.api.client.StoredConfigMap`."""

    def get(self) -> Object:
        """The ConfigMap as it is now."""

    def update(self, config_map: Object) -> None:
        """Replace it."""


class InventoryController(Controller):
    """Lists the inventory in each pass, and writes one part into each of `config_maps`.

    `policy` returns the present policy, or raises PolicyError.
    """

    def __init__(
        self,
        source: ObjectSource,
        config_maps: Sequence[Stored],
        policy: Callable[[], Policy],
        scope: Scope,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            _log,
            "inventory incomplete",
            expected=(PolicyError, SourceError, TooLargeError),
            stale_seconds=_STALE_SECONDS,
            monotonic=monotonic,
        )
        self._source = source
        self._config_maps = config_maps
        self._policy = policy
        self._scope = scope
        self._now = now
        self._checked_at = 0.0
        self._objects = 0

    def _reconcile(self, report: Callable[[Exception], object]) -> None:
        now = datetime.datetime.fromtimestamp(self._now(), tz=datetime.UTC)
        inventory = list_inventory(
            self._source,
            self._policy(),
            self._scope,
            on_error=report,
        )
        stored = [config_map.get() for config_map in self._config_maps]
        if not _is_fresh(stored, now, inventory):
            texts = self._texts(CheckedInventory(now, inventory), report)
            for part, (config_map, raw) in enumerate(zip(self._config_maps, stored, strict=True)):
                # Other keys have no owner.
                data = {inventory_file_name(part): texts[part]}
                config_map.update({**raw, "data": data, "binaryData": None})
        self._objects, self._checked_at = len(inventory), now.timestamp()

    def _texts(
        self, checked: CheckedInventory, on_error: Callable[[SourceError], object]
    ) -> list[str]:
        """One text for each ConfigMap. What does not fit is left out, and given to `on_error`."""
        parts = len(self._config_maps)
        try:
            return format_inventory(checked, parts)
        except TooLargeError as error:
            kept, left_out = without_largest_namespaces(checked.inventory, parts)
            names = ", ".join(left_out[:_NAMED])
            more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
            why = f"{error}: raise clusterInventory.parts; left out: namespaces {names}{more}"
            on_error(SourceError(why))
            return format_inventory(checked._replace(inventory=kept), parts)

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        yield GaugeMetricFamily(
            "gpuward_inventory_listed_objects", "Objects in the inventory.", self._objects
        )
        yield GaugeMetricFamily(
            "gpuward_inventory_checked_timestamp_seconds",
            "When the inventory was last compared with the cluster.",
            self._checked_at,
        )
        yield CounterMetricFamily(
            "gpuward_inventory_failures",
            "Comparisons that failed, or had to leave something out.",
            self.failures,
        )


def _is_fresh(stored: Sequence[Object], now: datetime.datetime, inventory: Inventory) -> bool:
    """Return whether the ConfigMaps have this inventory, and are not old."""
    texts = [
        (raw.get("data") or {}).get(inventory_file_name(part), "")
        for part, raw in enumerate(stored)
    ]
    try:
        found = parse_inventory([text.encode() for text in texts])
    except ValueError:
        return False
    age = (now - found.checked_at).total_seconds()
    return found.inventory == inventory and 0 <= age < RENEW_SECONDS
