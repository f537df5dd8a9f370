"""Tell running pods that are the same to every rule, as replicas of one template are."""

from __future__ import annotations

import hashlib
import marshal
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cluster.source.objects import Object, without_managed_fields
from rules.base.json_values import as_object, as_text
from rules.inventory.inventory import Inventory
from rules.placement.named_nodes import gpu_node

MARSHAL_VERSION = 2
"""In this version of the format, each text is written out, so that equal values are equal bytes."""

# The texts that are written for each pod alone, and that no rule reads of a running pod. The tests
# compare this with every case of a rule. All else of a pod counts.
_OF_METADATA = ("name", "generateName", "uid", "resourceVersion", "creationTimestamp")
_OF_OWNERS = ("name", "uid")
# Of the node, rules read whether it has GPUs; the key says that.
_OF_SPEC = ("nodeName", "hostname")
# Labels and annotations by which controllers number the pods that they make.
_OF_LABELS = (
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
    "statefulset.kubernetes.io/pod-name",
)
# The volume with the token of the service account, which the API server adds to each pod.
_TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")


def replica_key(raw: Object, inventory: Inventory) -> bytes | None:
    """Return a digest of what rules read of a running pod; None for other objects.

    If rules that know `inventory` find nothing in a pod, they find nothing in others with the same
    digest.
    """
    metadata, spec, status = (as_object(raw.get(key)) for key in ("metadata", "spec", "status"))
    is_known_to_run = metadata.get("uid") and (spec.get("nodeName") or status)
    if (raw.get("apiVersion"), raw.get("kind")) != ("v1", "Pod") or not is_known_to_run:
        return None
    token = _token_volume(spec)
    read = {
        **raw,
        "metadata": _without_own_metadata(metadata),
        "spec": _without_texts(_without_volume_name(spec, token) if token else spec, _OF_SPEC),
        "status": (bool(status), status.get("phase")),
    }
    node = gpu_node(as_text(spec.get("nodeName")), inventory)
    content = marshal.dumps((read, node and node.shown_by), MARSHAL_VERSION)
    if token and token.encode() in content:
        return None  # a user has written it too, and it may mean something there
    return hashlib.blake2b(content, digest_size=16).digest()


def _without_own_metadata(metadata: Mapping[str, Any]) -> Object:
    changed: Object = _without_texts(without_managed_fields(metadata), _OF_METADATA)
    for field in ("labels", "annotations"):
        if field in changed:
            changed[field] = _without_texts(changed[field], _OF_LABELS)
    if "ownerReferences" in changed:
        owners = changed["ownerReferences"]
        changed["ownerReferences"] = _each(owners, lambda owner: _without_texts(owner, _OF_OWNERS))
    return changed


def _without_texts(value: Any, fields: Iterable[str]) -> Any:
    """`value` with `...`, which is no JSON, in place of the text of each of these fields."""
    if not isinstance(value, dict):
        return value
    return {**value, **{f: ... for f in fields if as_text(value.get(f))}}


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    return list(map(change, value)) if isinstance(value, list) else value


def _token_volume(spec: Mapping[str, Any]) -> str:
    """Return the name of the volume with the token; empty if there is none."""
    volumes = spec.get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        if _TOKEN_VOLUME.fullmatch(name := as_text(as_object(volume).get("name"))):
            return name
    return ""


def _without_volume_name(spec: Mapping[str, Any], name: str) -> Object:
    """`spec` with `...` in place of the name of a volume, and where containers mount it."""

    def unnamed(entry: Any) -> Any:
        is_named = isinstance(entry, dict) and entry.get("name") == name
        return {**entry, "name": ...} if is_named else entry

    def with_unnamed_mounts(container: Any) -> Any:
        if not isinstance(container, dict) or "volumeMounts" not in container:
            return container
        return {**container, "volumeMounts": _each(container["volumeMounts"], unnamed)}

    changed = {**spec, "volumes": _each(spec["volumes"], unnamed)}
    for field in ("containers", "initContainers", "ephemeralContainers"):
        if field in spec:
            changed[field] = _each(spec[field], with_unnamed_mounts)
    return changed
