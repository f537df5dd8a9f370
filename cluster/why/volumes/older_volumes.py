"""Volumes of older kinds, which CSI drivers serve by now: what kube-scheduler takes them for.

It takes those of `azureFile` and `vsphereVolume` as they are.
Source: Kubernetes, `staging/src/k8s.io/csi-translation-lib`, and of kube-scheduler's plugins
`nodevolumelimits/utils.go` and `volumebinding/binder.go`, tryTranslatePVToCSI.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from cluster.source.objects import Object
from cluster.why.placed.label_selectors import labels_of
from rules.base.json_values import as_object, as_objects, as_text, as_texts

BETA_ZONE, ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"
BETA_REGION, REGION = "failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"

_Labels: TypeAlias = Mapping[str, str]


class DriverVolume(NamedTuple):
    """A volume as its driver knows it; kube-scheduler fails at one without a `handle`."""

    driver: str
    handle: str


class OlderKind(NamedTuple):
    """A kind of volumes: the plugin of Kubernetes that served them, and the driver that does now.

    - `handle`: returns the name that the driver knows a volume by, of its source and labels.
    - `zone_key`: the label by which the driver names zones; empty if places remain as they are.
    """

    plugin: str
    driver: str
    handle: Callable[[Mapping[str, Any], _Labels], str]
    zone_key: str = ""


def _aws_handle(source: Mapping[str, Any], _: _Labels) -> str:
    name = as_text(source.get("volumeID"))
    if not name.startswith("aws://"):
        return name
    try:
        name = urlsplit(name).path.strip("/")
    except ValueError:  # such as "aws://["
        return ""
    return name if re.fullmatch(r"vol-[^/]*", name) else ""


def _azure_handle(source: Mapping[str, Any], _: _Labels) -> str:
    # The API server gives a disk without a kind the kind Shared.
    is_managed = as_text(source.get("kind")).lower() == "managed"
    return as_text(source.get("diskURI")) if is_managed else ""


def _gce_handle(source: Mapping[str, Any], labels: _Labels) -> str:
    zones = labels.get(BETA_ZONE) or labels.get(ZONE) or "UNSPECIFIED"
    place = f"zones/{zones}"
    if "__" in zones:
        found = [re.fullmatch(r"([^-]*-[^-]*)-[^-]*", zone) for zone in zones.split("__")]
        regions = {zone[1] if zone else "" for zone in found}
        if len(regions) > 1 or "" in regions:
            return ""
        place = f"regions/{regions.pop()}"
    return f"projects/UNSPECIFIED/{place}/disks/{as_text(source.get('pdName'))}"


def _volume_id(source: Mapping[str, Any], _: _Labels) -> str:
    return as_text(source.get("volumeID"))


_KINDS = {
    "awsElasticBlockStore": OlderKind(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", _aws_handle, "topology.ebs.csi.aws.com/zone"
    ),
    "azureDisk": OlderKind("kubernetes.io/azure-disk", "disk.csi.azure.com", _azure_handle),
    "cinder": OlderKind(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        _volume_id,
        "topology.cinder.csi.openstack.org/zone",
    ),
    "gcePersistentDisk": OlderKind(
        "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", _gce_handle, "topology.gke.io/zone"
    ),
    "portworxVolume": OlderKind("kubernetes.io/portworx-volume", "pxd.portworx.com", _volume_id),
}
"""The kinds that kube-scheduler translates, by the field of such a volume."""

DRIVER_BY_PLUGIN = {kind.plugin: kind.driver for kind in _KINDS.values()}
"""The driver that makes the volumes of a class, by its provisioner of an older kind."""


def driver_volume(source: Mapping[str, Any], labels: _Labels | None = None) -> DriverVolume | None:
    """Return the volume of a driver that one of an older kind is; None if it is of no such kind.

    `source` is the spec of a PersistentVolume, which has `labels`, or a volume of a pod.
    """
    for field, kind in _KINDS.items():
        if isinstance(found := source.get(field), dict):
            return DriverVolume(kind.driver, kind.handle(found, labels or {}))
    return None


class TranslatedVolume(NamedTuple):
    """A PersistentVolume as kube-scheduler sees it at nodes that have migrated its `plugin`."""

    plugin: str
    raw: Object

    def is_seen_at(self, csi_node: Object | None) -> bool:
        """Return whether the node of a CSINode has migrated the plugin."""
        metadata = as_object((csi_node or {}).get("metadata"))
        plugins = as_text(as_object(metadata.get("annotations")).get(_MIGRATED))
        return self.plugin in plugins.split(",")


def translated(volume: Object) -> TranslatedVolume | None:
    """Return a PersistentVolume of an older kind whose zones have the labels of its driver.

    None if it is of no such kind, or names no zones.
    """
    spec = as_object(volume.get("spec"))
    kind = next((kind for field, kind in _KINDS.items() if isinstance(spec.get(field), dict)), None)
    if kind is None or not kind.zone_key:
        return None
    required = as_object(as_object(spec.get("nodeAffinity")).get("required"))
    terms = [term for _, term in as_objects(required.get("nodeSelectorTerms"))]
    labels, renamed, added = labels_of(volume), dict[str, str](), list[object]()
    zone = _zone_label(terms, labels)
    if _values_of(zone, terms):
        renamed[zone] = kind.zone_key
    elif zones := sorted({part.strip() for part in labels.get(zone, "").split("__")} - {""}):
        added.append({"key": kind.zone_key, "operator": "In", "values": zones})
    if zone == BETA_ZONE and _values_of(BETA_REGION, terms):
        renamed[BETA_REGION] = REGION
    if not (renamed or added):
        return None
    made = [_with_keys(term, renamed, added) for term in (terms or [{}])]
    affinity = {"required": {"nodeSelectorTerms": made}}
    return TranslatedVolume(kind.plugin, {**volume, "spec": {**spec, "nodeAffinity": affinity}})


def _zone_label(terms: list[Mapping[str, Any]], labels: _Labels) -> str:
    """Return the label by which a volume names its zone: its affinity goes before its labels."""
    keys = {as_text(one.get("key")) for term in terms for one in _expressions(term)}
    return next(
        (key for there in (keys, labels) for key in (ZONE, BETA_ZONE) if key in there), ZONE
    )


def _values_of(key: str, terms: list[Mapping[str, Any]]) -> list[str]:
    expressions = (one for term in terms for one in _expressions(term) if one.get("key") == key)
    return [value for one in expressions for value in as_texts(one.get("values"))]


def _with_keys(
    term: Mapping[str, Any], renamed: Mapping[str, str], added: list[object]
) -> dict[str, Any]:
    expressions = [
        {**one, "key": renamed.get(as_text(one.get("key")), one.get("key"))}
        for one in _expressions(term)
    ]
    return {**term, "matchExpressions": [*expressions, *added]}


def _expressions(term: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for _, one in as_objects(term.get("matchExpressions"))]
