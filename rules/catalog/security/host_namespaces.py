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

Clients of an MPS daemon may need `hostIPC`, so the rule only warns.

Fix safety
----------
The fix sets the field to false only if the policy says `fix: true`: the program may need it. There
is no fix for the volume.

References
----------
- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- https://docs.nvidia.com/deploy/mps/
"""

from rules.base.json_values import display, put
from rules.base.traits import GPU_OR_NODE_CONSTRAINT, HOST_NAMESPACE, HOST_PATH
from rules.gpu.volumes import containers_of, group_by_volume, host_mounts
from rules.in_process.statement import SUB_PATHS, Statement, cel, concat
from rules.placement.gpu_nodes import is_for_gpus
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
        if pod.spec.get(field) is True and is_for_gpus(pod):
            path = (*pod.path, field)
            message = (
                f"the pod is for GPUs and sets {field}: true, so it shares the {what} of its node"
            )
            fix = Fix(f"set {field}: false", (put(path, value=False),))
            yield Finding(path=path, key=field, message=message, help=advice, fix=fix)
    mounts = [mount for mount in host_mounts(pod) if mount.path in SHARED_MEMORY_PATHS]
    if mounts and is_for_gpus(pod):
        for group in group_by_volume(mounts):
            mount = group[0]
            yield Finding(
                path=mount.field,
                key=mount.key,
                message=(
                    f"the pod is for GPUs and its volume {display(mount.volume)} is the "
                    f"{display(mount.path)} of the node, so it shares the shared memory of its node"
                ),
                containers=containers_of(group),
                help=SHARED_MEMORY_ADVICE,
            )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    for_gpus = "the pod is for GPUs and "
    of_fields = (
        Statement(
            "pod",
            f"$spec.?{field}.orValue(false) && ($isForGpus)",
            cel(f"{for_gpus}sets {field}: true, so it shares the {what} of its node"),
            cel(advice),
        )
        for field, (what, advice) in SHARED_THINGS_AND_ADVICE.items()
    )
    message = concat(
        cel(f"{for_gpus}its volume "),
        'm.shownVolume + " is the " + m.shown',
        cel(" of the node, so it shares the shared memory of its node"),
    )
    where = f"m.path in {cel(sorted(SHARED_MEMORY_PATHS))} && ($isForGpus)"
    advice = cel(SHARED_MEMORY_ADVICE)
    return (*of_fields, Statement("volume", where, message, advice, leaves_out=SUB_PATHS))


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(HOST_NAMESPACE | HOST_PATH, GPU_OR_NODE_CONSTRAINT),
)
