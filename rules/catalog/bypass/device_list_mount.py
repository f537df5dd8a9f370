"""A container requests GPUs by mounting /dev/null under a magic path.

What it does
------------
Finds volume mounts that show the host's `/dev/null` at a path which begins with
`/var/run/nvidia-container-devices`. Both paths are cleaned first, as the runtime does it.
A PersistentVolume, or a link on the node, that leads to `/dev/null` cannot be seen in a pod.

Why it matters
--------------
Where NVIDIA's container toolkit accepts device lists as volume mounts, each such mount is
a request for the device named by the rest of the path, and no resource limit counts it.
The mounts come before the environment, so `NVIDIA_VISIBLE_DEVICES=void` does not help.

Fix safety
----------
The mount is removed only if the policy says `fix: true`: a refusal is clearer than a
program that silently sees no GPU.

References
----------
- NVIDIA container toolkit, `internal/config/image/cuda_image.go` (`requestsFromMounts`)
- https://github.com/bottlerocket-os/bottlerocket/issues/3992
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.container import Container
from rules.context import Context
from rules.document import remove
from rules.host_paths import clean, host_path
from rules.pod import Pod
from rules.reading import shown, text
from rules.rule import Action, Finding, Fix, Rule
from rules.traits import HOST_PATH

NOTHING = "/dev/null"
ROOT = "/var/run/nvidia-container-devices"


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each path at which a mount requests a device."""
    nothing = {
        text(volume.get("name")) for _, volume in pod.volumes if host_path(volume) == NOTHING
    }
    if not nothing:
        return
    for container in pod.containers:
        requests: dict[str, list[int]] = {}
        for index, mount in container.mounts:
            path = clean(text(mount.get("mountPath")))
            # The root alone names no device; what follows needs no separator.
            if text(mount.get("name")) in nothing and path != ROOT and path.startswith(ROOT):
                requests.setdefault(path, []).append(index)
        for path, indices in requests.items():
            yield _finding(container, path, indices)


def _finding(container: Container, path: str, indices: list[int]) -> Finding:
    mounts = (*container.path, "volumeMounts")
    return Finding(
        path=(*mounts, indices[0], "mountPath"),
        key=f"volumeMounts.{path}",
        message=(
            f"{container} mounts {NOTHING} at {shown(path, 120)}, which requests "
            f"{_request(path.removeprefix(ROOT).removeprefix('/'))} from NVIDIA's runtime "
            "without the scheduler counting it"
        ),
        container=container,
        help="remove the mount and ask for the GPU in resources.limits (such as nvidia.com/gpu: 1)",
        fix=Fix("remove the mount", tuple(remove((*mounts, index)) for index in indices)),
    )


def _request(device: str) -> str:
    kind, _, rest = device.partition("/")
    if kind == "imex" and rest:
        return f"the IMEX channel {shown(rest)}"
    if kind == "cdi" and rest:
        owner, _, name = rest.rpartition("/")
        return f"the CDI device {shown(f'{owner}={name}')}"
    return f"the device {shown(device)}"


RULE = Rule(
    name="device-list-mount",
    subject=Pod,
    action=Action.DENY,
    since="0.1",
    summary="a container requests GPUs by mounting /dev/null under a magic path",
    check=check,
    needs=(HOST_PATH,),
)
