"""Manifests with many of what rules about requests, commands, hygiene and other objects read."""

from __future__ import annotations

from collections.abc import Mapping

from tests.testkit.admission.heavy_parts import (
    GPU,
    SHARE,
    Make,
    Manifest,
    each,
    env,
    heavy_pod,
    holder,
    keys,
    required,
    term,
)

PRODUCT = "nvidia.com/gpu.product"
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # of a container


def _several(**fields: object) -> Manifest:
    """A container with two GPUs."""
    return holder(**{"resources": {"limits": {GPU: 2}}, **fields})


def _object(kind: str, group: str, **fields: object) -> Manifest:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "heavy"}, **fields}


HEAVY_REQUESTS: Mapping[str, tuple[int, Make]] = {
    "words of a launcher": (
        0,
        lambda n, t: heavy_pod(_several(args=["vllm serve " + "-tp 1 " * (n // 6) + t])),
    ),
    "sizes by reference": (
        160,
        lambda n, t: heavy_pod(
            *each(n, lambda i: _several(name=i, args=["vllm serve a -tp $(A)"], env=[env("A", t)]))
        ),
    ),
    "containers that sleep": (
        120,
        lambda n, t: heavy_pod(*each(n, lambda i: holder(name=i + t, args=["sleep inf"]))),
    ),
    "an idle command": (
        0,
        lambda n, t: heavy_pod(holder(args=["sh -c trap : TERM" + " INT" * (n // 4) + t])),
    ),
    "a mask of cards": (
        0,
        lambda n, t: heavy_pod(holder(env=[env("CUDA_VISIBLE_DEVICES", "0," * (n // 2) + t)])),
    ),
    "driver capabilities": (
        0,
        lambda n, t: heavy_pod(
            holder(env=[env("NVIDIA_DRIVER_CAPABILITIES", "gl," * (n // 3) + t)])
        ),
    ),
    "volumes in memory": (
        140,
        lambda n, t: heavy_pod(
            holder(volumeMounts=each(n, lambda i: {"name": i + t, "mountPath": SHARED_MEMORY})),
            volumes=each(n, lambda i: {"name": i + t, "emptyDir": {"medium": "Memory"}}),
        ),
    ),
    "containers that share a volume in memory": (
        150,
        lambda n, t: heavy_pod(
            *each(
                n,
                lambda i: _several(
                    name=i + t, volumeMounts=[{"name": "shm", "mountPath": SHARED_MEMORY}]
                ),
            ),
            volumes=[{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Ti"}}],
        ),
    ),
    "claims of the pod": (
        70,
        lambda n, t: heavy_pod(
            holder(resources={"claims": each(n, lambda i: {"name": i + t, "request": "a"})}),
            resourceClaims=each(n, lambda i: {"name": t + i, "resourceClaimName": i}),
        ),
    ),
    "devices for RDMA": (
        30,
        lambda n, t: heavy_pod(
            holder(resources={"limits": {GPU: 1, **keys(n, f"example.com/rdma_{t}#", "1")}})
        ),
    ),
    "other extended resources": (
        30,
        lambda n, t: heavy_pod(
            holder(resources={"limits": {GPU: 1, **keys(n, f"example.com/{t}#", "0.5")}})
        ),
    ),
    "containers on nodes of many products": (
        120,
        lambda n, t: heavy_pod(
            *each(n // 2, lambda i: _several(name=i)),
            affinity=required([term(PRODUCT, "In", *keys(n, f"A100-MIG-{t}#"))]),
        ),
    ),
    "shares on nodes of many products": (
        140,
        lambda n, t: heavy_pod(
            *each(n // 2, lambda i: holder(name=i, resources={"limits": SHARE})),
            affinity=required(
                [term(PRODUCT, "In", f"{key}-A100-80GB") for key in keys(n // 2, f"{t}#")]
            ),
        ),
    ),
    "modes of nodes": (
        120,
        lambda n, t: heavy_pod(
            holder(),
            affinity=required(
                [term("ack.node.gpu.schedule", "In", key) for key in keys(n, f"c{t}#")]
            ),
        ),
    ),
    "limits of a namespace": (
        60,
        lambda n, t: _object(
            "LimitRange",
            "v1",
            spec={
                "limits": each(
                    max(n // 10, 1),
                    lambda i: {
                        "type": "Container",
                        "default": keys(10, f"nvidia.com/mig-{t}{i}#", "1"),
                    },
                )
            },
        ),
    ),
    "misspelt keys of a quota": (
        40,
        lambda n, t: _object(
            "ResourceQuota", "v1", spec={"hard": keys(n, f"requests.nvidia.com/{t}g#", "0.5")}
        ),
    ),
    "labels of a node": (
        30,
        lambda n, t: {
            **_object("Node", "v1", status={"capacity": keys(n // 2, f"nvidia.com/mig-{t}#", "1")}),
            "metadata": {"name": "heavy", "labels": keys(n // 2, f"nvidia.com/gpu.{t}#", "a")},
        },
    ),
}
"""As `heavy_manifests.HEAVY`."""
