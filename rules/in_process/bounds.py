"""The bounds of what policies in CEL read of a pod, and a test for more.

An API server stops an expression that takes more than 1,000,000 units of cost.
"""

from collections.abc import Iterator

from rules.base.traits import DEVICE_LIST_FOLDER
from rules.in_process.nodes import PREFERRED_TERMS, REQUIRED_TERMS
from rules.in_process.statement import any_of, cel
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


def too_large(is_read: str) -> str:
    """Return, as CEL, whether a pod has more of anything than is read.

    `is_read` says whether a variable `e` of a container counts as one about GPUs.
    """
    longest = MAX_CHARACTERS["value of a GPU variable"]
    counts = {
        "characters in images": 'b.raw.?image.orValue("").size()',
        "variables": "b.raw.?env.orValue([]).size()",
        "GPU variables": f"b.raw.?env.orValue([]).filter(e, {is_read}).size()",
        "entries of envFrom": "b.raw.?envFrom.orValue([]).size()",
        "characters in values of GPU variables": (
            f"b.raw.?env.orValue([]).filter(e, {is_read})"
            f'.map(e, [e.?value.orValue("").size()].map(n, n > {longest} ? 0 : n)[0]).sum()'
        ),
        "mounts": "b.raw.?volumeMounts.orValue([]).size()",
        "resources": "b.raw.?resources.?limits.orValue({}).size()",
    }
    lists = f"b.raw.?env.orValue([]).filter(e, e.name.endsWith({cel(DRIVER_VARIABLE_SUFFIX)}))"
    tests = [
        # Each is compared with all others of its container.
        f"$base.exists(b, {lists}.size() > {MAX_COUNTS['GPU variables']})",
        f"$base.size() > {MAX_COUNTS['containers']}",
        *(f"$base.map(b, {count}).sum() > {MAX_COUNTS[name]}" for name, count in counts.items()),
        f"$spec.?volumes.orValue([]).size() > {MAX_COUNTS['volumes']}",
        *_too_many_paths(),
        (
            "$base.exists(b, b.raw.?envFrom.orValue([]).exists(s,"
            f" s.?prefix.orValue('').size() > {MAX_CHARACTERS['prefix']}))"
        ),
        f"$spec.?nodeSelector.orValue({{}}).size() > {MAX_COUNTS['node labels']}",
        f"{REQUIRED_TERMS}.size() > {MAX_COUNTS['terms of node affinity']}",
        f"{PREFERRED_TERMS}.size() > {MAX_COUNTS['terms of node affinity']}",
        *(
            f"{terms}.map(t, {expressions}.orValue([])"
            ".map(x, x.?values.orValue([]).size() + 1).sum()).sum()"
            f" > {MAX_COUNTS['expressions of them']}"
            for terms, expressions in (
                (REQUIRED_TERMS, "t.?matchExpressions"),
                (PREFERRED_TERMS, "t.?preference.?matchExpressions"),
            )
        ),
        f"$spec.?tolerations.orValue([]).size() > {MAX_COUNTS['tolerations']}",
        f"$annotations.size() > {MAX_COUNTS['annotations']}",
        (
            "$base.exists(b, b.raw.?env.orValue([]).exists(e, "
            f"e.name.size() > {MAX_CHARACTERS['name of a variable']}))"
        ),
    ]
    return any_of(tests)


def _too_many_paths() -> Iterator[str]:
    mounted = "b.raw.?volumeMounts.orValue([]).filter(m, $hostPaths.exists(h, h.name == m.name))"
    length = (
        'm.?subPath.orValue("").size() + m.?subPathExpr.orValue("").size()'
        " + $hostPaths.filter(h, h.name == m.name)[0].path.size()"
    )
    lists = (
        "b.raw.?volumeMounts.orValue([])"
        f".filter(m, m.mountPath.contains({cel(DEVICE_LIST_FOLDER)}))"
    )
    most = MAX_COUNTS["mounts at paths of lists of devices"]
    yield f"$base.map(b, {lists}.size()).sum() > {most}"
    characters = f"$base.map(b, {lists}.map(m, m.mountPath.size()).sum()).sum()"
    yield f"{characters} > {MAX_COUNTS['characters in paths of such mounts']}"
    most = MAX_COUNTS["characters in these paths"]
    yield f"$hostPaths.map(h, h.path.size()).sum() > {most}"
    yield f"$base.map(b, {mounted}.size()).sum() > {MAX_COUNTS['mounts of paths of the node']}"
    yield f"$base.map(b, {mounted}.map(m, {length}).sum()).sum() > {most}"
