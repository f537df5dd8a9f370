"""Manifests that a tenant would write to occupy the webhook.

Each has many of what some part of gpuward reads: elements of a list, keys, characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.testkit.admission.heavy_containers import HEAVY_CONTAINERS
from tests.testkit.admission.heavy_parts import (
    BYPASS,
    GPU,
    Make,
    Manifest,
    custom,
    deep,
    each,
    heavy_pod,
    holder,
    keys,
    required,
    term,
)
from tests.testkit.admission.heavy_requests import HEAVY_REQUESTS
from tests.testkit.admission.reviews import container

HEAVY: Mapping[str, tuple[int, Make]] = {
    **HEAVY_CONTAINERS,
    **HEAVY_REQUESTS,
    "misspelt resources": (
        25,
        lambda n, t: heavy_pod(holder(resources={"limits": keys(n, f"nvidia.com/{t}g#")})),
    ),
    "resources with a quota's prefix": (
        36,
        lambda n, t: heavy_pod(
            holder(resources={"limits": keys(n, f"requests.nvidia.com/mig-{t}#")})
        ),
    ),
    "resources requested and not limited": (
        26,
        lambda n, t: heavy_pod(holder(resources={"requests": keys(n, f"nvidia.com/mig-{t}#")})),
    ),
    "resources of zero": (
        60,
        lambda n, t: heavy_pod(
            holder(
                resources={
                    "limits": keys(n, f"huawei.com/Ascend#{t}-memory", "0")
                    | keys(n, f"huawei.com/Ascend{t}#")
                }
            )
        ),
    ),
    "digits of an amount": (
        0,
        lambda n, t: heavy_pod(holder(resources={"limits": {GPU: "1" * n + t}})),
    ),
    "an image": (0, lambda n, t: heavy_pod(container(image="nvcr.io/nvidia/" + ":0/" * n + t))),
    "tolerations": (
        50,
        lambda n, t: heavy_pod(
            holder(),
            tolerations=each(n, lambda i: {"key": f"nvidia.com/gpus{t}{i}", "effect": "x"}),
        ),
    ),
    "nearly right tolerations": (
        50,
        lambda n, t: heavy_pod(holder(), tolerations=[{"key": "nvidia.com/gpus", "value": t}] * n),
    ),
    "terms and labels": (
        110,
        lambda n, t: heavy_pod(
            holder(),
            nodeSelector=keys(n, f"{t}#", "a"),
            affinity=required([term(key, "In", "b") for key in keys(n, f"{t}#")]),
        ),
    ),
    "values of a label": (
        30,
        lambda n, t: heavy_pod(
            holder(),
            affinity=required(
                [term("l", "In", *keys(n, f"{t}#")), term("l", "NotIn", *keys(n, f"{t}#"))]
            ),
        ),
    ),
    "topology keys": (
        30,
        lambda n, t: heavy_pod(
            holder(), topologySpreadConstraints=each(n, lambda i: {"topologyKey": t + i})
        ),
    ),
    "claims": (
        20,
        lambda n, t: heavy_pod(holder(resources={"claims": each(n, lambda i: {"name": t + i})})),
    ),
    "annotations for devices": (
        30,
        lambda n, t: heavy_pod(metadata={"annotations": keys(n, "cdi.k8s.io/#", t)}),
    ),
    "annotations for injectors": (
        50,
        lambda n, t: heavy_pod(
            metadata={"annotations": keys(n, "devices.gke.io/container.#", f"path: /dev/{t}")}
        ),
    ),
    "a value of an injector": (
        0,
        lambda n, t: heavy_pod(metadata={"annotations": {"devices.nri.io/pod": "-,/dev" * n + t}}),
    ),
    "keys of schedulers": (
        40,
        lambda n, t: heavy_pod(
            metadata={"annotations": keys(n, f"hami.io/devices-allocated-{t}#", t)}
        ),
    ),
    "keys of other schedulers": (
        30,
        lambda n, t: heavy_pod(metadata={"annotations": keys(n, f"{t}#/predicate-time", "1")}),
    ),
    "labels": (25, lambda n, t: heavy_pod(metadata={"labels": keys(n, f"gpu-{t}#", "a")})),
    "values of a label that names models": (
        20,
        lambda n, t: heavy_pod(
            affinity=required(
                [term("karpenter.k8s.aws/instance-gpu-name", "In", *keys(n, f"{t}-h#00"))]
            )
        ),
    ),
    "models of a NodePool": (
        20,
        lambda n, t: {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "heavy"},
            "spec": {
                "template": {
                    "spec": {
                        "requirements": [
                            {
                                "key": "karpenter.k8s.aws/instance-gpu-name",
                                "operator": "In",
                                "values": [*keys(n, f"{t}-h#00")],
                            }
                        ]
                    }
                }
            },
        },
    ),
    "requests of a claim for devices": (
        60,
        lambda n, t: {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "heavy"},
            "spec": {
                "devices": {"requests": each(n, lambda i: {"name": i + t, "adminAccess": True})}
            },
        },
    ),
    "a deep custom resource": (50, deep),
    "pods of a custom resource": (
        150,
        lambda n, t: custom(
            "Job",
            "batch.volcano.sh",
            {
                "tasks": each(
                    n, lambda i: {"name": t + i, "template": {"spec": {"containers": [BYPASS]}}}
                )
            },
        ),
    ),
    "keys of a quota": (
        40,
        lambda n, t: {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "heavy"},
            "spec": {"hard": keys(n, f"limits.nvidia.com/{t}#", "1")},
        },
    ),
    "resources of a LimitRange": (
        40,
        lambda n, t: {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "heavy"},
            "spec": {
                "limits": [{"type": "Container", "default": keys(n, f"nvidia.com/{t}#", "1")}]
            },
        },
    ),
}
"""By what a manifest has many of: the bytes of one without its text, and how to make many."""

# Lengths of the text, in characters, from short ones to one that fills the whole object.
LENGTHS = (1, 50, 500, 4000, 100_000, 1_400_000)


def heavy_manifests(size: int) -> Iterator[tuple[str, Manifest]]:
    """Manifests of about `size` bytes with what they have many of, for every length of texts."""
    for name in HEAVY:
        for length in LENGTHS:
            if manifest := heavy_manifest(name, size, length):
                yield f"{name}, texts of {length}", manifest


def heavy_manifest(name: str, size: int, length: int) -> Manifest | None:
    """The manifest of about `size` bytes with texts of `length`; None if one does not fit in."""
    each, make = HEAVY[name]
    return make(size // (each + length), "a" * length) if each + length <= size else None
