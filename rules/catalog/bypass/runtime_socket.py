"""A pod on a GPU node reaches the socket of the container runtime.

What it does
------------
Finds hostPath volumes that some container mounts and that hold the socket of Docker,
containerd, CRI-O, Podman or NRI, or a directory with it, in pods that hold a GPU or select
GPU nodes. A read-only mount counts too: it does not keep anyone from connecting.

Why it matters
--------------
Whoever reaches the runtime's socket can start containers past Kubernetes: with every GPU
of the node, privileged, and unseen by the scheduler and by admission control.

References
----------
- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- https://docs.docker.com/engine/security/#docker-daemon-attack-surface
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.context import Context
from rules.host_paths import host_mounts
from rules.placement import is_for_gpus
from rules.pod import Pod
from rules.reading import shown
from rules.rule import Action, Finding, Rule
from rules.traits import FOR_GPUS, HOST_PATH

SOCKETS = (
    *("docker.sock", "docker/containerd/containerd.sock", "cri-dockerd.sock", "dockershim.sock"),
    *("containerd/containerd.sock", "containerd/containerd.sock.ttrpc"),
    *("k3s/containerd/containerd.sock", "k0s/containerd.sock"),
    *("crio/crio.sock", "podman/podman.sock", "nri/nri.sock"),
)


def _and_directories(socket: str) -> Iterator[str]:
    yield socket
    while socket := socket.rpartition("/")[0]:
        yield socket


# Below `/var` the sockets are reached by a link, which leads nowhere inside a container.
REVEALING = {
    path
    for run in ("/run", "/var/run")
    for socket in SOCKETS
    for path in _and_directories(f"{run}/{socket}")
} - {"/var"}


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each volume through which a container reaches a runtime's socket."""
    mounts = {mount.volume: mount for mount in host_mounts(pod) if mount.path in REVEALING}
    if mounts and is_for_gpus(pod):
        for mount in mounts.values():
            message = (
                f"{mount.container} sees {shown(mount.path)} of the node through the volume "
                f"{shown(mount.volume)}, and with it the container runtime, "
                "which starts containers with any GPU"
            )
            advice = "remove the volume and its mounts"
            yield Finding(mount.field, mount.key, message, help=advice)


RULE = Rule(
    name="runtime-socket",
    subject=Pod,
    action=Action.WARN,
    since="0.1",
    summary="a pod on a GPU node reaches the socket of the container runtime",
    check=check,
    needs=(HOST_PATH, FOR_GPUS),
    instead_of=("plugin-dir-hostpath",),
)
