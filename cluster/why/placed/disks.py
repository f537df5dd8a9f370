"""Disks that a pod names itself, without a claim: kube-scheduler's filter VolumeRestrictions.

Source: Kubernetes, `pkg/scheduler/framework/plugins/volumerestrictions/volume_restrictions.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cluster.why.volumes.older_volumes import DriverVolume, driver_volume
from rules.base.json_values import as_object, as_objects, as_text, as_texts

_KEYS = {
    "awsElasticBlockStore": ("volumeID",),
    "gcePersistentDisk": ("pdName",),
    "iscsi": ("iqn",),
    "rbd": ("image", "pool"),
}


class Disk(NamedTuple):
    """A disk that pods cannot share; several can that only read it.

    `monitors` are those of Ceph: without one in common, the disks of two pods differ. `volume` is
    what the disk is to a driver that serves it.
    """

    kind: str
    name: str
    is_read_only: bool
    monitors: frozenset[str] = frozenset()
    volume: DriverVolume | None = None

    @property
    def keys(self) -> list[tuple[str, str, str]]:
        """Return what two disks have in common that are the same."""
        monitors = self.monitors if self.kind == "rbd" else ("",)
        return [(self.kind, self.name, monitor) for monitor in monitors]


class DisksInUse:
    """The disks of the pods of a node, found by their keys: a pod may name thousands."""

    def __init__(self) -> None:
        self._users: dict[tuple[str, str, str], str] = {}
        self._writers: dict[tuple[str, str, str], str] = {}

    def add(self, disk: Disk, pod: str) -> None:
        """Count the disk of a pod."""
        for key in disk.keys:
            self._users.setdefault(key, pod)
            if not disk.is_read_only:
                self._writers.setdefault(key, pod)

    def pod_beside(self, disk: Disk) -> str:
        """Return a pod beside which none with `disk` can be; empty if there is none."""
        pods = self._writers if disk.is_read_only else self._users
        return next((pods[key] for key in disk.keys if key in pods), "")

    def copy(self) -> DisksInUse:
        """Return the same disks, to which others can be added."""
        made = DisksInUse()
        made._users, made._writers = {**self._users}, {**self._writers}
        return made


def disks_of(spec: Mapping[str, Any]) -> Iterator[Disk]:
    """The disks that the `spec` of a pod names."""
    for _, volume in as_objects(spec.get("volumes")):
        for kind, keys in _KEYS.items():
            if disk := as_object(volume.get(kind)):
                # The API server gives a disk of Ceph this pool.
                values = {"pool": "rbd", **disk} if kind == "rbd" else disk
                yield Disk(
                    kind,
                    "/".join(as_text(values.get(key)) for key in keys),
                    disk.get("readOnly") is True and kind != "awsElasticBlockStore",
                    frozenset(as_texts(disk.get("monitors"))),
                    driver_volume(volume),
                )
