"""A pod that has to do with GPUs shares the processes or the memory of its node.

What it does
------------
Finds `hostPID: true` and `hostIPC: true` in pods that request a GPU or select GPU nodes, and
hostPath volumes that show some container the node's `/dev/shm`. `hostNetwork` is fine: NCCL uses it
for fast networks.

Why it matters
--------------
In the node's namespaces a container sees the processes and the shared memory of all pods on the
node, so the GPU work of other tenants is not isolated from it.

Clients of an MPS daemon may need `hostIPC`, so the rule only warns. GKE demands it of pods on its
nodes with MPS: `hostIPC` of a pod that selects them is no finding.

Fix safety
----------
The fix sets the field to false only if the policy says `fix: true`: the program may need it. There
is no fix for the volume.

References
----------
- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- https://docs.nvidia.com/deploy/mps/
- https://cloud.google.com/kubernetes-engine/docs/how-to/nvidia-mps-gpus
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_text, display, put
from rules.base.traits import GPU_OR_NODE_CONSTRAINT, HOST_NAMESPACE, HOST_PATH
from rules.gpu.volumes import containers_of, group_by_volume, host_mounts
from rules.in_process.expression import (
    OBJECT,
    Expression,
    all_of,
    any_of,
    entry,
    get,
    is_in,
    not_,
    optional,
    text,
)
from rules.in_process.nodes import REQUIRED_TERMS
from rules.in_process.statement import MOUNT, SUB_PATHS, Statement
from rules.placement.gpu_nodes import is_for_gpus
from rules.placement.node_affinity import expression_values, expressions, required_terms
from rules.profile.platforms.gke import MPS_STRATEGIES, SHARING_LABEL
from rules.profile.platforms.node_paths import in_run
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

SHARED_THINGS_AND_ADVICE = {
    "hostPID": ("processes", "leave hostPID out"),
    "hostIPC": (
        "shared memory",
        "leave hostIPC out; for /dev/shm mount an `emptyDir: {medium: Memory}` instead",
    ),
}
SHARED_MEMORY_PATHS = frozenset({"/dev/shm", *in_run("shm")})  # noqa: S108
SHARED_MEMORY_ADVICE = "mount an `emptyDir: {medium: Memory}` instead"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each of the node's namespaces that the pod shares, and its shared memory."""
    for field, (what, advice) in SHARED_THINGS_AND_ADVICE.items():
        if field == "hostIPC" and _selects_mps_of_gke(pod):
            continue
        if pod.spec.get(field) is True and is_for_gpus(pod):
            path = (*pod.path, field)
            message = _field_message(field, what)
            fix = Fix(f"set {field}: false", (put(path, value=False),))
            yield Finding(path=path, key=field, message=message, help=advice, fix=fix)
    mounts = [mount for mount in host_mounts(pod) if mount.path in SHARED_MEMORY_PATHS]
    if mounts and is_for_gpus(pod):
        for group in group_by_volume(mounts):
            mount = group[0]
            yield Finding(
                path=mount.field,
                key=mount.key,
                message=_volume_message(display(mount.volume), display(mount.path)),
                containers=containers_of(group),
                help=SHARED_MEMORY_ADVICE,
            )


def _field_message(field: str, what: str) -> str:
    return f"the pod is for GPUs and sets {field}: true, so it shares the {what} of its node"


def _volume_message(volume: object, path: object) -> str:
    return (
        f"the pod is for GPUs and its volume {volume} is the {path} of the node, "
        "so it shares the shared memory of its node"
    )


def _selects_mps_of_gke(pod: Pod) -> bool:
    """Return whether the pod selects GKE's nodes on which clients of MPS need the node's memory."""
    if as_text(pod.node_selector.get(SHARING_LABEL)) in MPS_STRATEGIES:
        return True
    terms = [term for _, term in required_terms(pod)]
    return bool(terms) and all(
        any(_demands_mps(expression) for _, expression in expressions(term)) for term in terms
    )


def _demands_mps(expression: Mapping[str, Any]) -> bool:
    values = expression_values(expression) if expression.get("operator") == "In" else None
    return expression.get("key") == SHARING_LABEL and {*MPS_STRATEGIES}.issuperset(values or {""})


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    of_fields = (
        Statement(
            "pod",
            all_of(get(OBJECT.spec, word, False), OBJECT.isForGpus, *_excuses(word)),
            _field_message(word, what),
            advice,
        )
        for word, (what, advice) in SHARED_THINGS_AND_ADVICE.items()
    )
    of_volumes = Statement(
        "volume",
        all_of(is_in(MOUNT.path, sorted(SHARED_MEMORY_PATHS)), OBJECT.isForGpus),
        text(_volume_message(MOUNT.shownVolume, MOUNT.shown)),
        SHARED_MEMORY_ADVICE,
        leaves_out=SUB_PATHS,
    )
    return (*of_fields, of_volumes)


def _excuses(word: str) -> list[Expression]:
    return [not_(_selects_mps_in_cel())] if word == "hostIPC" else []


def _selects_mps_in_cel() -> Expression:
    def demands_mps(x: Expression) -> Expression:
        return all_of(
            x.key == SHARING_LABEL,
            x.operator == "In",
            x.values.size() > 0,
            x.values.all(lambda v: is_in(v, MPS_STRATEGIES)),
        )

    def in_term(t: Expression) -> Expression:
        return get(t, "matchExpressions", []).exists(demands_mps)

    selected = entry(optional(OBJECT.spec, "nodeSelector"), SHARING_LABEL, "")
    return any_of(
        is_in(selected, MPS_STRATEGIES),
        all_of(REQUIRED_TERMS.size() > 0, REQUIRED_TERMS.all(in_term)),
    )


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(HOST_NAMESPACE | HOST_PATH, GPU_OR_NODE_CONSTRAINT),
)
