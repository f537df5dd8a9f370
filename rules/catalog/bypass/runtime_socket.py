"""A pod on a GPU node reaches the container runtime by its sockets or its state directory.

What it does
------------
Checks pods that request a GPU or select GPU nodes. Finds hostPath volumes that some container
mounts and that show a directory in which a container runtime keeps what it needs while containers
run, anything below it, or a directory above it. Such directories are `/run/containerd`,
`/run/docker`, `/run/crio`, `/run/containers/storage`, `/run/podman`, `/run/nri`, those of runc,
crun, gVisor and Kata Containers, and those of k3s, RKE2, k0s, MicroK8s, Bottlerocket and Talos. The
sockets themselves, such as `/run/docker.sock`, count too. A read-only mount does not prevent a
process from connecting to a socket, so it counts as well.

Log directories, such as `/var/log/pods`, are fine. Where a runtime keeps its images,
`plugin-dir-hostpath` reports what can be written.

Why it matters
--------------
A process that reaches the runtime's socket can start containers without Kubernetes: with every GPU
of the node, privileged, and unknown to the scheduler and to admission control. The sockets of
containerd's shims, in `/run/containerd/s`, are as good: a shim starts any program for every process
that connects, as root of the node.

References
----------
- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- https://docs.docker.com/engine/security/#docker-daemon-attack-surface
"""

from rules.base.json_values import display
from rules.base.traits import GPU_OR_NODE_CONSTRAINT, HOST_PATH
from rules.gpu.volumes import containers_of, group_by_volume, host_mounts
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    Expression,
    all_of,
    any_of,
    choose,
    expression,
    is_in,
    text,
)
from rules.in_process.statement import CONTAINER, MOUNT, SUB_PATHS, Statement
from rules.placement.gpu_nodes import is_for_gpus
from rules.profile.platforms.node_paths import RUNTIME_STATE_DIRECTORIES, directories_up
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

# Directories with a slash at their ends, as the paths have one with which they are compared.
STATE_DIRECTORIES = tuple(f"{directory}/" for directory in RUNTIME_STATE_DIRECTORIES)
# Which of the distributions has its runtime somewhere below `/var` is not known;
# `plugin-dir-hostpath` reports it for the kubelet's directory, which is there on most.
DIRECTORIES_ABOVE = frozenset(
    above for directory in RUNTIME_STATE_DIRECTORIES for above in directories_up(directory)
) - {"/var", "/var/lib", "/var/lib/k0s"}
ADVICE = "remove the volume and its mounts"


def _shows_runtime(path: str) -> bool:
    return path in DIRECTORIES_ABOVE or f"{path}/".startswith(STATE_DIRECTORIES)


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each volume that shows a container the socket of a runtime."""
    mounts = [mount for mount in host_mounts(pod) if _shows_runtime(mount.path)]
    if mounts and is_for_gpus(pod):
        for group in group_by_volume(mounts):
            mount = group[0]
            yield Finding(
                path=mount.field,
                key=mount.key,
                message=_message(mount.container, display(mount.path), display(mount.volume)),
                containers=containers_of(group),
                help=ADVICE,
            )


def _message(container: object, path: object, volume: object) -> str:
    return (
        f"{container} sees {path} of the node through the volume {volume}, "
        "and with it the container runtime, which starts containers with any GPU"
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, m = CONTAINER, MOUNT
    statement = Statement(
        "volume",
        where=all_of(OBJECT.isForGpus, _shows_runtime_in_cel(m.path)),
        message=text(_message(c.text, m.shown, m.shownVolume)),
        help=ADVICE,
        facts={
            "aboveRuntime": sorted(DIRECTORIES_ABOVE),
            "runtimeState": sorted(STATE_DIRECTORIES),
        },
        leaves_out=SUB_PATHS,
    )
    return (statement,)


def _shows_runtime_in_cel(path: Expression) -> Expression:
    """`_shows_runtime` of `path`."""
    # No directory is longer, so what follows decides nothing.
    longest = max(map(len, STATE_DIRECTORIES))
    head = choose((path.size() < longest, path + "/"), otherwise=path.substring(0, longest))
    is_below = expression([head]).exists(
        lambda head: POLICY.runtimeState.exists(lambda d: head.startsWith(d))
    )
    return any_of(is_in(path, POLICY.aboveRuntime), is_below)


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(HOST_PATH, GPU_OR_NODE_CONSTRAINT),
    supersedes=("plugin-dir-hostpath",),
)
