"""Replicas of a pod, as controllers and the API server make them."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from rules.gpu.launchers import SIZE_VARIABLES
from tests.testkit.admission.reviews import review_body

ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_LAUNCHER_IMAGES = ("vllm-openai", "text-generation-inference")


def replica(manifest: Any, choices: random.Random) -> Any:
    """A copy of a pod with other names, and with whatever else rules do not read.

    It has a volume with the token of its service account, as the API server adds one.
    """
    pod = copy.deepcopy(manifest)
    suffix = "".join(choices.choices(LETTERS, k=5))
    token = "kube-api-access-" + "".join(choices.choices(LETTERS, k=5))
    metadata = pod.setdefault("metadata", {})
    metadata |= {"name": f"replica-{suffix}", "generateName": f"replica-{suffix[:2]}-"}
    metadata |= {"uid": suffix * 4, "managedFields": [{"manager": suffix}], "finalizers": [suffix]}
    for field in ("labels", "annotations"):
        texts = metadata.get(field) if isinstance(metadata.get(field), dict) else None
        metadata[field] = {**(texts or {}), "batch.kubernetes.io/job-completion-index": suffix}
        metadata[field][f"example.com/{suffix}"] = suffix
    spec = pod["spec"]
    spec |= {"hostname": suffix, "priority": choices.randrange(9), "dnsPolicy": suffix}
    projected = {"name": token, "projected": {"sources": [{"x": suffix}]}}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{suffix}"}}
    volumes = spec.get("volumes") or []
    # Rules read the commands of pods that mount a path of the node, and those with known words,
    # images or variables.
    is_on_node = any("hostPath" in volume for volume in volumes if isinstance(volume, dict))
    spec["volumes"] = [*volumes, projected, claim]
    for name in CONTAINER_LISTS:
        for container in spec.get(name) or ():
            is_launcher = any(name in str(container.get("image")) for name in _LAUNCHER_IMAGES)
            is_launcher |= any(name in str(container.get("env")) for name in SIZE_VARIABLES)
            if not (is_on_node or is_launcher or container.get("command")):
                container.setdefault("args", [suffix, f"$({suffix})"])
            container["ports"] = [{"containerPort": choices.randrange(1, 9)}]
            mounts = container.get("volumeMounts") or []
            container["volumeMounts"] = [*mounts, {"name": token, "mountPath": ACCOUNT_MOUNT}]
            variables = container.get("env") or []
            container["env"] = [*variables, {"name": "RANK", "value": suffix}]
    return pod


def review_of_replica(manifest: Any, choices: random.Random, **circumstances: Any) -> bytes:
    """The review of a replica of `manifest`, with a uid of its own."""
    review = review_body(replica(manifest, choices), **circumstances)
    review["request"]["uid"] = f"{choices.random()}"
    review["request"]["dryRun"] = choices.random() < 1 / 2
    return json.dumps(review, separators=(",", ":")).encode()
