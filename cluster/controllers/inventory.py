"""Keep the inventory in its ConfigMaps up to date."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.protocols import ClusterError, Object
from cluster.service import metrics_of
from cluster.source.objects import ObjectSource, SourceError
from cluster_commands.inventory.listing import list_inventory
from policies.controller_files import (
    CheckedInventory,
    TooLargeError,
    file_name,
    format_inventory,
    parse_inventory,
    without_largest_namespaces,
)
from policies.loading import PolicyError
from rules.inventory.inventory import Inventory
from rules.profile.profile import Profile

RENEW_SECONDS = 600.0
"""How often the files are written though nothing has changed; the webhook uses them for an hour."""
_NAMED = 5  # namespaces in a message
_STALE_SECONDS = 1800.0  # a pass through a large cluster, with attempts that fail, takes less
_log = structlog.get_logger("gpuward.inventory")


class Stored(Protocol):
    """A ConfigMap: `cluster.config_map.StoredConfigMap`."""

    def get(self) -> Object:
        """The ConfigMap as it is now."""

    def update(self, config_map: Object) -> None:
        """Replace it."""


class InventoryController(Collector):
    """Lists the inventory at each `reconcile()`, and writes one part into each of `config_maps`.

    `profile` returns the profile of the present policy, or raises PolicyError.
    """

    def __init__(
        self,
        source: ObjectSource,
        config_maps: Sequence[Stored],
        profile: Callable[[], Profile],
        *,
        reads_config_maps: bool,
        reads_nodes: bool,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._config_maps = config_maps
        self._profile = profile
        self._reads_config_maps = reads_config_maps
        self._reads_nodes = reads_nodes
        self._now = now
        self._monotonic = monotonic
        self._ended_at = monotonic()
        self._checked_at = 0.0
        self._objects = 0
        self._failures = 0
        self._errors: list[str] = []

    def reconcile(self) -> None:
        """One pass. Errors are logged, and counted; the next pass makes up for it."""
        errors: list[str] = []
        try:
            self._reconcile(lambda error: errors.append(str(error)))
        except (ClusterError, PolicyError, SourceError, TooLargeError) as error:
            errors.append(str(error))
        except Exception:  # noqa: BLE001  # the next pass may succeed
            self._failures += 1
            _log.exception("inventory not written")
        self._failures += bool(errors)
        for text in errors:
            if text not in self._errors:
                _log.error("inventory incomplete", error=text)
        self._errors = errors
        self._ended_at = self._monotonic()

    def _reconcile(self, on_error: Callable[[SourceError], object]) -> None:
        now = datetime.datetime.fromtimestamp(self._now(), tz=datetime.UTC)
        inventory = list_inventory(
            self._source,
            self._profile(),
            reads_config_maps=self._reads_config_maps,
            reads_nodes=self._reads_nodes,
            on_error=on_error,
        )
        stored = [config_map.get() for config_map in self._config_maps]
        if not _is_fresh(stored, now, inventory):
            texts = self._texts(CheckedInventory(now, inventory), on_error)
            for part, (config_map, raw) in enumerate(zip(self._config_maps, stored, strict=True)):
                # Other keys have no owner.
                data = {file_name(part): texts[part]}
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

    @property
    def alive(self) -> bool:
        """Whether passes still end, well or badly: a restart would not help a failing one."""
        return self._monotonic() - self._ended_at <= _STALE_SECONDS

    def metrics(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return metrics_of(self)

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
            self._failures,
        )


def _is_fresh(stored: Sequence[Object], now: datetime.datetime, inventory: Inventory) -> bool:
    """Whether the ConfigMaps have this inventory, and are not old."""
    texts = [(raw.get("data") or {}).get(file_name(part), "") for part, raw in enumerate(stored)]
    try:
        found = parse_inventory([text.encode() for text in texts])
    except ValueError:
        return False
    age = (now - found.checked_at).total_seconds()
    return found.inventory == inventory and 0 <= age < RENEW_SECONDS
