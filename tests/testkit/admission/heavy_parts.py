"""Parts of manifests that have many of something."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tests.testkit.admission.reviews import container, pod, variable

GPU = "nvidia.com/gpu"
SHARE = {"aliyun.com/gpu-mem": "1"}
BYPASS = container("taker", **variable("all"))
CUDA = "nvcr.io/nvidia/cuda:12"

Manifest = dict[str, Any]
Make = Callable[[int, str], Manifest]
"""Makes a manifest with so many elements, each with the text."""


def heavy_pod(*containers: Manifest, metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """A pod with these containers, or with one that grants itself all GPUs."""
    manifest = pod(*(containers or (BYPASS,)), **spec)
    return {**manifest, "metadata": {"name": "heavy", **(metadata or {})}}


def host(path: str, name: str = "host") -> Manifest:
    """A hostPath volume."""
    return {"name": name, "hostPath": {"path": path}}


def holder(**fields: Any) -> Manifest:
    """A container that holds a GPU."""
    return {"name": "holder", "image": "x", "resources": {"limits": {GPU: 1}}, **fields}


def commands(name: str, text: str) -> Manifest:
    """A container that runs `text` and mounts a path of the node."""
    mounts = [{"name": "host", "mountPath": "/host"}]
    return container(name, args=[text], volumeMounts=mounts)


def env(name: str, value: str = "1") -> Manifest:
    """A variable."""
    return {"name": name, "value": value}


def each(count: int, make: Callable[[str], Manifest]) -> list[Manifest]:
    """Return what `make` makes of each number below `count`."""
    return [make(str(number)) for number in range(count)]


def keys(count: int, form: str, value: Any = 1) -> Manifest:
    """An object with `count` keys, made of `form` with a number in letters for `#`."""
    letters = ("".join(word) for word in itertools.product("bcdefghijk", repeat=5))
    return {form.replace("#", word): value for word in itertools.islice(letters, count)}


def required(terms: list[Manifest]) -> Manifest:
    """A required node affinity."""
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {field: {"nodeSelectorTerms": terms}}}


def term(key: str, operator: str, *values: str) -> Manifest:
    """A term of it with one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def custom(kind: str, group: str, spec: Any) -> Manifest:
    """A custom resource."""
    meta = {"name": "heavy"}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": spec}


def deep(count: int, text: str) -> Manifest:
    """A custom resource with pods inside one another."""
    inner: Any = {"containers": [BYPASS]}
    for _ in range(min(count, 300)):
        inner = {"spec": {text: inner, "containers": [BYPASS]}}
    return custom("Deep", "example.com", inner)
