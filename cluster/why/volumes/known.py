"""The facts that are known of the volumes of a cluster, and the fields of volumes and claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from cluster.source.objects import Object
from rules.base.json_values import as_object, as_objects, as_text

_CLASS = "volume.beta.kubernetes.io/storage-class"

Known: TypeAlias = Mapping[str, Object] | None
"""Objects by name; None if it is not known which there are."""


def _unknown(_: str = "") -> Known:
    return None


class KnownVolumes(NamedTuple):
    """Functions that return what a cluster has.

    `claims` takes a namespace, and `attachments`, the VolumeAttachments, the name of a node.
    """

    claims: Callable[[str], Known] = _unknown
    volumes: Callable[[], Known] = _unknown
    classes: Callable[[], Known] = _unknown
    drivers: Callable[[], Known] = _unknown
    csi_nodes: Callable[[], Known] = _unknown
    attachments: Callable[[str], Known] = _unknown
    capacities: Callable[[], Known] = _unknown


class VolumeObstacle(NamedTuple):
    """The reason against a node: the filter, its message, and the volume or claim.

    - `words`, `remedy`: the reason for people, and what would change it.
    - `pod`: the pod that is in the way, if there is one.
    """

    plugin: str
    message: str
    subject: str
    words: str
    remedy: str
    pod: str = ""


class Claim(NamedTuple):
    """A PersistentVolumeClaim of a pod, by its name; `is_ephemeral`: it is made for this pod."""

    name: str
    raw: Object
    is_ephemeral: bool = False

    @property
    def spec(self) -> Mapping[str, Any]:
        """Return the volume that it asks for."""
        return as_object(self.raw.get("spec"))

    @property
    def storage_class(self) -> str:
        """The name of its storage class; empty if it names none."""
        return class_of(self.raw)


def claims_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, Object | None]]:
    """The claims of a pod by name, with the spec of those that are made for it."""
    metadata, spec = as_object(pod.get("metadata")), as_object(pod.get("spec"))
    for _, volume in as_objects(spec.get("volumes")):
        if claim := as_object(volume.get("persistentVolumeClaim")):
            yield as_text(claim.get("claimName")), None
        elif ephemeral := as_object(volume.get("ephemeral")):
            template = as_object(ephemeral.get("volumeClaimTemplate"))
            name = f"{as_text(metadata.get('name'))}-{as_text(volume.get('name'))}"
            yield name, dict(as_object(template.get("spec")))


def class_of(raw: Object) -> str:
    """The name of the storage class of a claim or a volume; empty if it names none."""
    spec = as_object(raw.get("spec"))
    return annotations_of(raw).get(_CLASS) or as_text(spec.get("storageClassName"))


def annotations_of(raw: Object) -> Mapping[str, str]:
    """The annotations of an object."""
    found = as_object(as_object(raw.get("metadata")).get("annotations"))
    return {key: as_text(value) for key, value in found.items()}


def object_of(known: Known, name: str) -> Object | None:
    """The object `name`; None if there is none, or none is known."""
    return None if known is None else known.get(name)
