"""Manifests that somebody would write to occupy the webhook.

Each has many of what some part of gpuward reads: elements of a list, keys, characters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.testkit.admission.reviews import container, pod, variable

GPU = "nvidia.com/gpu"
SHARE = {"aliyun.com/gpu-mem": "1"}
BYPASS = container("taker", **variable("all"))
CUDA = "nvcr.io/nvidia/cuda:12"

Manifest = dict[str, Any]
Make = Callable[[int, str], Manifest]
"""Makes a manifest with so many elements, each with the text."""

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


def _pod(*containers: Manifest, metadata: Manifest | None = None, **spec: Any) -> Manifest:
    manifest = pod(*(containers or (BYPASS,)), **spec)
    return {**manifest, "metadata": {"name": "heavy", **(metadata or {})}}


def _host(path: str, name: str = "host") -> Manifest:
    return {"name": name, "hostPath": {"path": path}}


def _holder(**fields: Any) -> Manifest:
    return {"name": "holder", "image": "x", "resources": {"limits": {GPU: 1}}, **fields}


def _env(name: str, value: str = "1") -> Manifest:
    return {"name": name, "value": value}


def _each(count: int, make: Callable[[str], Manifest]) -> list[Manifest]:
    return [make(str(number)) for number in range(count)]


def _keys(count: int, form: str, value: Any = 1) -> Manifest:
    """An object with `count` keys, made of `form` with a number in letters for `#`."""
    letters = ("".join(word) for word in itertools.product("bcdefghijk", repeat=5))
    return {form.replace("#", word): value for word in itertools.islice(letters, count)}


def _required(terms: list[Manifest]) -> Manifest:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {field: {"nodeSelectorTerms": terms}}}


def _term(key: str, operator: str, *values: str) -> Manifest:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def _custom(kind: str, group: str, spec: Any) -> Manifest:
    meta = {"name": "heavy"}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": spec}


def _deep(count: int, text: str) -> Manifest:
    inner: Any = {"containers": [BYPASS]}
    for _ in range(min(count, 300)):
        inner = {"spec": {text: inner, "containers": [BYPASS]}}
    return _custom("Deep", "example.com", inner)


HEAVY: Mapping[str, tuple[int, Make]] = {
    "one path through processes": (0, lambda n, t: _pod(volumes=[_host("/proc/1/root" * n + t)])),
    "one path through threads": (
        0,
        lambda n, t: _pod(volumes=[_host("/proc/1/task/1/root" * n + t)]),
    ),
    "mounts of one path": (
        40,
        lambda n, t: _pod(
            {**BYPASS, "volumeMounts": _each(n, lambda i: {"name": "host", "mountPath": f"/{i}"})},
            volumes=[_host(f"/dev/nvidia-{t * min(n, 4)}")],
        ),
    ),
    "mounts with sub paths": (
        60,
        lambda n, t: _pod(
            {**BYPASS, "volumeMounts": _each(n, lambda i: {"name": "host", "subPath": f"{t}/{i}"})},
            volumes=[_host("/dev")],
        ),
    ),
    "device lists": (
        90,
        lambda n, t: _pod(
            {
                **BYPASS,
                "volumeMounts": _each(
                    n,
                    lambda i: {
                        "name": "host",
                        "mountPath": f"/var/run/nvidia-container-devices/{t}{i}",
                    },
                ),
            },
            volumes=[_host("/dev/null")],
        ),
    ),
    "volumes": (
        100,
        lambda n, t: _pod(
            _holder(volumeMounts=_each(n, lambda i: {"name": i + t, "mountPath": f"/{i}"})),
            volumes=_each(n, lambda i: _host("/dev/nvidia0", i + t)),
        ),
    ),
    "a long name, containers": (
        60,
        lambda n, t: _pod(
            *_each(n, lambda i: {"name": f"c{i}", "image": CUDA}),
            metadata={"name": "", "generateName": t * min(n, 1000)},
        ),
    ),
    "containers with long names": (
        60,
        lambda n, t: _pod(*_each(n, lambda i: {"name": t + i, "image": CUDA})),
    ),
    "privileged containers": (
        120,
        lambda n, t: _pod(
            _holder(),
            *_each(
                n,
                lambda i: {
                    "name": t + i,
                    "securityContext": {"privileged": True, "capabilities": {"add": ["ALL"]}},
                },
            ),
        ),
    ),
    "capabilities": (
        12,
        lambda n, t: _pod(_holder(securityContext={"capabilities": {"add": ["SYS_ADMIN", t] * n}})),
    ),
    "numbered limits of a share": (
        55,
        lambda n, t: _pod(
            _holder(
                resources={"limits": SHARE},
                env=_each(n, lambda i: _env(f"CUDA_DEVICE_MEMORY_LIMIT_{i}", t)),
            )
        ),
    ),
    "entries of one variable": (
        50,
        lambda n, t: _pod(_holder(env=[_env("NVIDIA_VISIBLE_DEVICES", t)] * n)),
    ),
    "entries of one variable between others": (
        90,
        lambda n, t: _pod(_holder(env=[_env("NVIDIA_VISIBLE_DEVICES", "all"), _env("V", t)] * n)),
    ),
    "a value of commas": (0, lambda n, t: _pod(container("taker", **variable("," * n + t)))),
    "a value of devices": (0, lambda n, t: _pod(container("taker", **variable("0," * n + t)))),
    "a value of blanks": (0, lambda n, t: _pod(container("taker", **variable(" " * n + t)))),
    "alternative variables": (
        40,
        lambda n, t: _pod(container(env=_each(n, lambda i: _env(f"DOCKER_RESOURCE_GPU{t}{i}")))),
    ),
    "a loader path": (0, lambda n, t: _pod(_holder(env=[_env("LD_PRELOAD", "a:" * n + t)]))),
    "prefixes": (
        65,
        lambda n, t: _pod(
            _holder(envFrom=_each(n, lambda i: {"prefix": "NVIDIA_", "secretRef": {"name": t + i}}))
        ),
    ),
    "misspelt resources": (
        25,
        lambda n, t: _pod(_holder(resources={"limits": _keys(n, f"nvidia.com/{t}g#")})),
    ),
    "resources with a quota's prefix": (
        36,
        lambda n, t: _pod(_holder(resources={"limits": _keys(n, f"requests.nvidia.com/mig-{t}#")})),
    ),
    "resources requested and not limited": (
        26,
        lambda n, t: _pod(_holder(resources={"requests": _keys(n, f"nvidia.com/mig-{t}#")})),
    ),
    "resources of zero": (
        60,
        lambda n, t: _pod(
            _holder(
                resources={
                    "limits": _keys(n, f"huawei.com/Ascend#{t}-memory", "0")
                    | _keys(n, f"huawei.com/Ascend{t}#")
                }
            )
        ),
    ),
    "digits of an amount": (
        0,
        lambda n, t: _pod(_holder(resources={"limits": {GPU: "1" * n + t}})),
    ),
    "an image": (0, lambda n, t: _pod(container(image="nvcr.io/nvidia/" + ":0/" * n + t))),
    "tolerations": (
        50,
        lambda n, t: _pod(
            _holder(),
            tolerations=_each(n, lambda i: {"key": f"nvidia.com/gpus{t}{i}", "effect": "x"}),
        ),
    ),
    "nearly right tolerations": (
        50,
        lambda n, t: _pod(_holder(), tolerations=[{"key": "nvidia.com/gpus", "value": t}] * n),
    ),
    "terms and labels": (
        110,
        lambda n, t: _pod(
            _holder(),
            nodeSelector=_keys(n, f"{t}#", "a"),
            affinity=_required([_term(key, "In", "b") for key in _keys(n, f"{t}#")]),
        ),
    ),
    "values of a label": (
        30,
        lambda n, t: _pod(
            _holder(),
            affinity=_required(
                [_term("l", "In", *_keys(n, f"{t}#")), _term("l", "NotIn", *_keys(n, f"{t}#"))]
            ),
        ),
    ),
    "topology keys": (
        30,
        lambda n, t: _pod(
            _holder(), topologySpreadConstraints=_each(n, lambda i: {"topologyKey": t + i})
        ),
    ),
    "claims": (
        20,
        lambda n, t: _pod(_holder(resources={"claims": _each(n, lambda i: {"name": t + i})})),
    ),
    "annotations for devices": (
        30,
        lambda n, t: _pod(metadata={"annotations": _keys(n, "cdi.k8s.io/#", t)}),
    ),
    "keys of schedulers": (
        40,
        lambda n, t: _pod(metadata={"annotations": _keys(n, f"hami.io/devices-allocated-{t}#", t)}),
    ),
    "labels": (25, lambda n, t: _pod(metadata={"labels": _keys(n, f"gpu-{t}#", "a")})),
    "a deep custom resource": (50, _deep),
    "pods of a custom resource": (
        150,
        lambda n, t: _custom(
            "Job",
            "batch.volcano.sh",
            {
                "tasks": _each(
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
            "spec": {"hard": _keys(n, f"limits.nvidia.com/{t}#", "1")},
        },
    ),
}
"""By what a manifest has many of: the bytes of one without its text, and how to make many."""
