"""A pod on a GPU node reaches the socket of the container runtime.

What it does
------------
Checks pods that request a GPU or select GPU nodes. Finds hostPath volumes that some container
mounts and that show the socket of Docker, containerd, CRI-O, Podman or NRI, or a directory above
it. A read-only mount counts too: it does not prevent a process from connecting.

Why it matters
--------------
A process that reaches the runtime's socket can start containers without Kubernetes: with every
GPU of the node, privileged, and unknown to the scheduler and to admission control.

References
----------
- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- https://docs.docker.com/engine/security/#docker-daemon-attack-surface
"""

from collections.abc import Iterator

from rules.base.json_values import display
from rules.base.traits import GPU_OR_NODE_CONSTRAINT, HOST_PATH
from rules.gpu.volumes import containers_of, group_by_volume, host_mounts
from rules.in_process.statement import SUB_PATHS, Statement, cel
from rules.placement.gpu_nodes import is_for_gpus
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

SOCKETS = (
    *("docker.sock", "docker/containerd/containerd.sock", "cri-dockerd.sock", "dockershim.sock"),
    *("containerd/containerd.sock", "containerd/containerd.sock.ttrpc"),
    *("k3s/containerd/containerd.sock", "k0s/containerd.sock"),
    *("crio/crio.sock", "podman/podman.sock", "nri/nri.sock"),
)


def _with_directories_above(socket: str) -> Iterator[str]:
    yield socket
    while socket := socket.rpartition("/")[0]:
        yield socket


# `/var/run` is a symbolic link to `/run`, so a mount of `/var` alone does not show the sockets.
PATHS_SHOWING_SOCKETS = {
    path
    for run in ("/run", "/var/run")
    for socket in SOCKETS
    for path in _with_directories_above(f"{run}/{socket}")
} - {"/var"}


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each volume that shows a container the socket of a runtime."""
    mounts = [mount for mount in host_mounts(pod) if mount.path in PATHS_SHOWING_SOCKETS]
    if mounts and is_for_gpus(pod):
        for group in group_by_volume(mounts):
            mount = group[0]
            yield Finding(
                path=mount.field,
                key=mount.key,
                message=(
                    f"{mount.container} sees {display(mount.path)} of the node through the volume "
                    f"{display(mount.volume)}, and with it the container runtime, "
                    "which starts containers with any GPU"
                ),
                containers=containers_of(group),
                help="remove the volume and its mounts",
            )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    end = ", and with it the container runtime, which starts containers with any GPU"
    message = (
        f'c.text + " sees " + m.shown + " of the node through the volume "'
        f" + m.shownVolume + {cel(end)}"
    )
    where = f"$isForGpus && m.path in {cel(sorted(PATHS_SHOWING_SOCKETS))}"
    advice = cel("remove the volume and its mounts")
    return (Statement("volume", where, message, advice, leaves_out=SUB_PATHS),)


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(HOST_PATH, GPU_OR_NODE_CONSTRAINT),
    supersedes=("plugin-dir-hostpath",),
)
