"""NVIDIA's container toolkit: known vulnerabilities of the version that nodes have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.doctor.facts import Facts, by_name, why_missing
from cluster.source.objects import Object
from cluster_commands.doctor.daemon_sets import DaemonSet, daemon_sets
from cluster_commands.doctor.rows import Row, names, not_known, ok, wrong
from cluster_commands.label_selectors import matches
from cluster_commands.source.resources import DAEMON_SETS, NODES
from rules.base.json_access import as_object, as_objects, as_text
from rules.gpu.images import image_name, image_tag
from rules.platforms.nvidia import TOOLKIT_ADVISORIES
from rules.profile.platforms.support import affecting

_CHECK = "container toolkit"
# The operator installs the toolkit with this image, from whatever registry.
_IMAGE = "container-toolkit"
_GPUS = "nvidia.com/"
_NEWEST = TOOLKIT_ADVISORIES[-1]
_REMEDY = (
    f"install {_NEWEST.fixed} or newer; the bulletins say which settings are not concerned: "
    f"{_NEWEST.source.url}"
)
_BY_HAND = f"see what `nvidia-ctk --version` says on a node: {_NEWEST.fixed} or newer is needed"


def check_container_toolkit(facts: Facts) -> Iterator[Row]:
    """One row for each DaemonSet that installs the toolkit, and one for nodes without any.

    Neither nodes nor their labels say which version they have; where the operating system brings
    the toolkit along, nothing in the cluster does.
    """
    nodes = [(name, node) for name, node in by_name(facts.objects(NODES)) if _has_gpus(node)]
    if nodes and (row := why_missing(facts, _CHECK, DAEMON_SETS)):
        yield row
        return
    selectors = []
    for daemon_set in daemon_sets(facts):
        if image := _toolkit_image(daemon_set.pod_spec):
            selectors.append({"matchLabels": daemon_set.pod_spec.get("nodeSelector")})
            yield _row(daemon_set, image)
    others = [name for name, node in nodes if not any(matches(s, _labels(node)) for s in selectors)]
    if others:
        message = "nothing in the cluster says which version these nodes have"
        yield not_known(_CHECK, names(others), message, _BY_HAND)


def _row(daemon_set: DaemonSet, image: str) -> Row:
    version = image_tag(image)
    found = affecting(TOOLKIT_ADVISORIES, version)
    if found is None:
        message = f"its image does not tell whether its version is fixed: {image}"
        return not_known(_CHECK, daemon_set.subject, message, _BY_HAND)
    if found:
        listed = names([each for advisory in reversed(found) for each in advisory.vulnerabilities])
        message = f"{version} has known vulnerabilities: {listed}"
        return wrong(_CHECK, daemon_set.subject, message, _REMEDY)
    updated, wanted = (
        daemon_set.status.get(field)
        for field in ("updatedNumberScheduled", "desiredNumberScheduled")
    )
    if isinstance(wanted, int) and wanted != (updated or 0):
        message = (
            f"{version} is on {updated or 0} of {wanted} nodes; the others have another version"
        )
        return not_known(_CHECK, daemon_set.subject, message, "wait until all pods are replaced")
    message = f"no bulletin up to {_NEWEST.source.updated} concerns {version}"
    return ok(_CHECK, daemon_set.subject, message)


def _toolkit_image(pod_spec: Mapping[str, Any]) -> str:
    images = (as_text(c.get("image")) for _, c in as_objects(pod_spec.get("containers")))
    return next((image for image in images if image_name(image) == _IMAGE), "")


def _has_gpus(node: Object) -> bool:
    allocatable = as_object(as_object(node.get("status")).get("allocatable"))
    return any(resource.startswith(_GPUS) for resource in allocatable)


def _labels(node: Object) -> Mapping[str, Any]:
    return as_object(as_object(node.get("metadata")).get("labels"))
