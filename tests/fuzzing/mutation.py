"""Mutations of values, for targets whose inputs chance would hardly keep well-formed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import yaml

_MAX_NODES = 3_000
# Values of every type, and texts that mean something to some rule or reader.
_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.5, 2**63, 1e300, "", "1", "-1", "0.5", "1Gi", "1e3", "all"),
    *("void", "none", "0,1", "GPU-0", "a", "é\u2028", "\ud83d", "x" * 300, "{{ .x }}", "$(A)"),
    *("a\nb", "../..", "/dev/nvidia0", "/proc/1/root/dev", "nvidia", "true", "0", "*", "Exists"),
    *("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "aliyun.com/gpu-mem", "NVIDIA_VISIBLE_DEVICES"),
    *("CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "SYS_ADMIN", "Pod", "Job", "List", "v1", "CREATE"),
    *("UPDATE", "deny", "warn", "off", "strict", "gpuward.io/v1", "2030-01-01", "team-*", [], {}),
    *([None], [{}], {"": {}}, {"name": "a"}, [{"name": "a"}, {"name": "a"}], {"a/b~c": "d"}),
]


def mutate_json(data: bytes, max_size: int, seed: int) -> bytes:
    """`data`, changed: as the JSON that it is in most calls, else as bytes."""
    return _mutate(data, max_size, seed, json.loads, json.dumps)


def mutate_yaml(data: bytes, max_size: int, seed: int) -> bytes:
    """`data`, changed: as the YAML of one document in every second call, else as bytes."""
    if seed % 2:
        return _mutate_bytes(data, max_size)
    return _mutate(data, max_size, seed, yaml.safe_load, yaml.safe_dump)


# PyYAML's own loader raises other errors than its own for odd numbers and dates.
_CANNOT_BE_CHANGED = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    *(RecursionError, yaml.YAMLError),
)


def _mutate(
    data: bytes,
    max_size: int,
    seed: int,
    loads: Callable[[bytes], Any],
    dumps: Callable[[Any], str],
) -> bytes:
    source = random.Random(seed)  # noqa: S311  # not for secrets
    try:
        value = loads(data)
        if source.random() < 0.1:
            return _mutate_bytes(data, max_size)
        for _ in range(source.choice((1, 1, 2, 4))):
            value = change_value(value, source)
        new = dumps(value).encode()
    except _CANNOT_BE_CHANGED:
        return _mutate_bytes(data, max_size)
    return new if len(new) <= max_size else _mutate_bytes(data, max_size)


def _mutate_bytes(data: bytes, max_size: int) -> bytes:
    # Only those who fuzz need it.
    changed: bytes = import_module("atheris").Mutate(data, max_size)
    return changed


def change_value(value: Any, source: random.Random) -> Any:
    """`value` with one change at a random place: of a key, an item, a word or a part elsewhere."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    if not places:
        return source.choice(_VALUES)
    parent, key = source.choice(places)
    other_parent, other_key = source.choice(places)
    kind = source.choice(("value", "copy", "remove", "double", "key", "text", "wrap"))
    if kind == "value":
        parent[key] = copy.deepcopy(source.choice(_VALUES))
    elif kind == "copy":
        parent[key] = copy.deepcopy(other_parent[other_key])
    elif kind == "remove":
        del parent[key]
    elif kind == "double" and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    elif kind == "key" and isinstance(parent, dict):
        parent[str(source.choice([*_VALUES, other_key]))] = parent.pop(key)
    elif kind == "text" and isinstance(parent[key], str):
        text, where = parent[key], source.randrange(len(parent[key]) + 1)
        parent[key] = (
            text[:where] + source.choice(("", "\n", "/", "A", "é", ",")) + text[where + 1 :]
        )
    else:
        parent[key] = source.choice(([parent[key]], {"name": parent[key]}))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every collection in `value` with each of its keys or indices, up to a bound."""
    waiting, left = [value], _MAX_NODES
    for node in waiting:
        children: Any = node.items() if isinstance(node, dict) else ()
        for key, child in enumerate(node) if isinstance(node, list) else children:
            left -= 1
            if left < 0:
                return
            yield node, key
            waiting.append(child)
