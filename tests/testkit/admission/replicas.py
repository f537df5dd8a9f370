"""Replicas of a pod, as controllers and the API server make them."""

from __future__ import annotations

import copy
import json
import random
from typing import Any, Literal

from tests.testkit.admission.reviews import review_body

ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
Maker = Literal["ReplicaSet", "StatefulSet", "indexed Job"]
MAKERS: tuple[Maker, ...] = ("ReplicaSet", "StatefulSet", "indexed Job")


def replica(manifest: Any, choices: random.Random, maker: Maker = "ReplicaSet") -> Any:
    """A pod as `maker` makes it from the template in `manifest`.

    It has a volume with the token of its service account, as the API server adds one.
    """
    pod = copy.deepcopy(manifest)
    suffix = "".join(choices.choices(LETTERS, k=5))
    token = "kube-api-access-" + "".join(choices.choices(LETTERS, k=5))
    metadata = pod.setdefault("metadata", {})
    spec = pod["spec"]
    volumes = [*(spec.get("volumes") or []), {"name": token, "projected": {"sources": []}}]
    metadata |= {"name": f"trainer-{suffix}", "generateName": "trainer-"}
    metadata |= {"uid": suffix * 4, "creationTimestamp": f"2026-11-28T10:00:0{suffix[0]}Z"}
    metadata["managedFields"] = [{"manager": suffix, "operation": "Update"}]
    number = str(choices.randrange(1_000))
    if maker == "StatefulSet":
        metadata["name"] = spec["hostname"] = f"trainer-{number}"
        volumes.append({"name": "d", "persistentVolumeClaim": {"claimName": f"d-trainer-{number}"}})
        labels = {
            "apps.kubernetes.io/pod-index": number,
            "statefulset.kubernetes.io/pod-name": f"trainer-{number}",
        }
        _add(metadata, "labels", labels)
    elif maker == "indexed Job":
        spec["hostname"] = f"trainer-{number}"
        metadata |= {"name": f"trainer-{number}-{suffix}", "generateName": f"trainer-{number}-"}
        for field in ("labels", "annotations"):
            _add(metadata, field, {"batch.kubernetes.io/job-completion-index": number})
    spec["volumes"] = volumes
    for name in CONTAINER_LISTS:
        for container in spec.get(name) or ():
            mounts = container.get("volumeMounts") or []
            mount = {"name": token, "readOnly": True, "mountPath": ACCOUNT_MOUNT}
            container["volumeMounts"] = [*mounts, mount]
    return pod


def _add(metadata: dict[str, Any], field: str, texts: dict[str, str]) -> None:
    present = metadata.get(field)
    metadata[field] = {**(present if isinstance(present, dict) else {}), **texts}


def review_of_replica(
    manifest: Any, choices: random.Random, maker: Maker = "ReplicaSet", **circumstances: Any
) -> bytes:
    """The review of a replica of `manifest`, with a uid of its own."""
    review = review_body(replica(manifest, choices, maker), **circumstances)
    review["request"]["uid"] = f"{choices.random()}"
    review["request"]["dryRun"] = choices.random() < 1 / 2
    return json.dumps(review, separators=(",", ":")).encode()
