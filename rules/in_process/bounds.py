"""The bounds of what policies in CEL read of a pod, and a test for more.

An API server stops an expression that takes more than 1,000,000 units of cost.
"""

from collections.abc import Callable, Iterator

from rules.base.traits import DEVICE_LIST_FOLDER
from rules.in_process.expression import OBJECT, Expression, any_of, choose, get, let
from rules.in_process.nodes import PREFERRED_TERMS, REQUIRED_TERMS
from rules.placement.gpu_nodes import DRIVER_VARIABLE_SUFFIX

MAX_COUNTS = {
    "containers": 250,
    "characters in images": 60_000,
    "variables": 1_500,
    "GPU variables": 100,
    "entries of envFrom": 300,
    "characters in values of GPU variables": 20_000,
    "volumes": 200,
    "mounts": 300,
    "resources": 500,
    "annotations": 300,
    "mounts at paths of lists of devices": 20,
    "characters in paths of such mounts": 4_000,
    "mounts of paths of the node": 50,
    "characters in these paths": 50_000,
    "node labels": 100,
    "terms of node affinity": 50,
    "expressions of them": 200,
    "tolerations": 200,
}
MAX_CHARACTERS = {"name of a variable": 256, "prefix": 256, "value of a GPU variable": 4_096}


def too_large(is_read: Callable[[Expression], Expression]) -> Expression:
    """Return whether a pod has more of anything than is read.

    `is_read` says whether a variable of a container counts as one about GPUs.
    """
    return any_of(
        *_too_much_in_containers(is_read),
        get(OBJECT.spec, "volumes", []).size() > MAX_COUNTS["volumes"],
        *_too_many_paths(),
        OBJECT.base.exists(_has_long_prefix),
        *_too_much_about_nodes(),
        OBJECT.annotations.size() > MAX_COUNTS["annotations"],
        OBJECT.base.exists(
            lambda b: _env(b).exists(lambda e: e.name.size() > MAX_CHARACTERS["name of a variable"])
        ),
    )


def _env(b: Expression) -> Expression:
    return get(b.raw, "env", [])


def _mounts(b: Expression) -> Expression:
    return get(b.raw, "volumeMounts", [])


def _sum_over_containers(count: Callable[[Expression], Expression]) -> Expression:
    return OBJECT.base.map(count).sum()


def _has_long_prefix(b: Expression) -> Expression:
    longest = MAX_CHARACTERS["prefix"]
    return get(b.raw, "envFrom", []).exists(lambda s: get(s, "prefix", "").size() > longest)


def _too_much_in_containers(
    is_read: Callable[[Expression], Expression],
) -> Iterator[Expression]:
    longest = MAX_CHARACTERS["value of a GPU variable"]

    def characters_in_values(b: Expression) -> Expression:
        sizes = (
            _env(b)
            .filter(is_read)
            .map(
                lambda e: let(
                    get(e, "value", "").size(), lambda n: choose((n > longest, 0), otherwise=n)
                )
            )
        )
        return sizes.sum()

    def lists_of_devices(b: Expression) -> Expression:
        return _env(b).filter(lambda e: e.name.endsWith(DRIVER_VARIABLE_SUFFIX))

    counts = {
        "characters in images": lambda b: get(b.raw, "image", "").size(),
        "variables": lambda b: _env(b).size(),
        "GPU variables": lambda b: _env(b).filter(is_read).size(),
        "entries of envFrom": lambda b: get(b.raw, "envFrom", []).size(),
        "characters in values of GPU variables": characters_in_values,
        "mounts": lambda b: _mounts(b).size(),
        "resources": lambda b: get(b.raw, "resources.limits", {}).size(),
    }
    # Each is compared with all others of its container.
    yield OBJECT.base.exists(lambda b: lists_of_devices(b).size() > MAX_COUNTS["GPU variables"])
    yield OBJECT.base.size() > MAX_COUNTS["containers"]
    for name, count in counts.items():
        yield _sum_over_containers(count) > MAX_COUNTS[name]


def _too_many_paths() -> Iterator[Expression]:
    def host_paths(m: Expression) -> Expression:
        return OBJECT.hostPaths.filter(lambda h: h.name == m.name)

    def mounted(b: Expression) -> Expression:
        return _mounts(b).filter(lambda m: OBJECT.hostPaths.exists(lambda h: h.name == m.name))

    def length(m: Expression) -> Expression:
        sub_path = get(m, "subPath", "").size() + get(m, "subPathExpr", "").size()
        return sub_path + host_paths(m)[0].path.size()

    def lists(b: Expression) -> Expression:
        return _mounts(b).filter(lambda m: m.mountPath.contains(DEVICE_LIST_FOLDER))

    most = MAX_COUNTS["characters in these paths"]
    yield (
        _sum_over_containers(lambda b: lists(b).size())
        > MAX_COUNTS["mounts at paths of lists of devices"]
    )
    yield (
        _sum_over_containers(lambda b: lists(b).map(lambda m: m.mountPath.size()).sum())
        > MAX_COUNTS["characters in paths of such mounts"]
    )
    yield OBJECT.hostPaths.map(lambda h: h.path.size()).sum() > most
    yield (
        _sum_over_containers(lambda b: mounted(b).size())
        > MAX_COUNTS["mounts of paths of the node"]
    )
    yield _sum_over_containers(lambda b: mounted(b).map(length).sum()) > most


def _too_much_about_nodes() -> Iterator[Expression]:
    def values_of(path: str) -> Callable[[Expression], Expression]:
        return lambda t: get(t, path, []).map(lambda x: get(x, "values", []).size() + 1).sum()

    yield get(OBJECT.spec, "nodeSelector", {}).size() > MAX_COUNTS["node labels"]
    yield REQUIRED_TERMS.size() > MAX_COUNTS["terms of node affinity"]
    yield PREFERRED_TERMS.size() > MAX_COUNTS["terms of node affinity"]
    for terms, path in (
        (REQUIRED_TERMS, "matchExpressions"),
        (PREFERRED_TERMS, "preference.matchExpressions"),
    ):
        yield terms.map(values_of(path)).sum() > MAX_COUNTS["expressions of them"]
    yield get(OBJECT.spec, "tolerations", []).size() > MAX_COUNTS["tolerations"]
