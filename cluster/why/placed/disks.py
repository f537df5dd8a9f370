"""Disks that a pod names itself, without a claim: kube-scheduler's filter VolumeRestrictions.

Source: Kubernetes, `pkg/scheduler/framework/plugins/volumerestrictions/volume_restrictions.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects, as_text

_KEYS = {
    "awsElasticBlockStore": ("volumeID",),
    "gcePersistentDisk": ("pdName",),
    "iscsi": ("iqn",),
    "rbd": ("image", "pool"),
}


class Disk(NamedTuple):
    """A disk that pods cannot share; several can that only read it.

    `monitors` are those of Ceph: without one in common, the disks of two pods differ.
    """

    kind: str
    name: str
    is_read_only: bool
    monitors: frozenset[str] = frozenset()

    def collides(self, other: Disk) -> bool:
        """Return whether two pods with these cannot be on one node."""
        is_same = (self.kind, self.name) == (other.kind, other.name)
        is_shared = self.is_read_only and other.is_read_only
        if self.kind == "rbd" and not self.monitors & other.monitors:
            return False
        return is_same and not is_shared


def disks_of(spec: Mapping[str, Any]) -> Iterator[Disk]:
    """The disks that the `spec` of a pod names."""
    for _, volume in as_objects(spec.get("volumes")):
        for kind, keys in _KEYS.items():
            if disk := as_object(volume.get(kind)):
                # The API server gives a disk of Ceph this pool.
                values = {"pool": "rbd", **disk} if kind == "rbd" else disk
                listed = disk.get("monitors")
                yield Disk(
                    kind,
                    "/".join(as_text(values.get(key)) for key in keys),
                    disk.get("readOnly") is True and kind != "awsElasticBlockStore",
                    frozenset(map(as_text, listed)) if isinstance(listed, list) else frozenset(),
                )
