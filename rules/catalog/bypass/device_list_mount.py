"""A container requests GPUs by mounting /dev/null under a magic path.

What it does
------------
Finds volume mounts that show the host's `/dev/null` at a path which begins with
`/var/run/nvidia-container-devices`. gpuward normalizes both paths first, as the container runtime
does. Not found: a PersistentVolume, or a symbolic link on the node, that leads to `/dev/null`.
The pod does not show where it leads.

Why it matters
--------------
Where NVIDIA's container toolkit accepts device lists as volume mounts, each such mount requests
the device named by the rest of the path. No resource limit counts it. The toolkit reads the
mounts before the environment, so `NVIDIA_VISIBLE_DEVICES=void` does not help.

Fix safety
----------
The fix removes the mount only if the policy says `fix: true`: a refusal is clearer than a program
that silently sees no GPU.

References
----------
- NVIDIA container toolkit, `internal/config/image/cuda_image.go` (`requestsFromMounts`)
- https://github.com/bottlerocket-os/bottlerocket/issues/3992
"""

from rules.base.json_values import as_text, display, remove
from rules.base.traits import HOST_PATH
from rules.gpu.visibility_edits import remove_and_request
from rules.gpu.volumes import clean_path, host_path
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

NOTHING = "/dev/null"
ROOT = "/var/run/nvidia-container-devices"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each path at which a mount requests a device."""
    null_volumes = {
        as_text(volume.get("name")) for _, volume in pod.volumes if host_path(volume) == NOTHING
    }
    if not null_volumes:
        return
    for container in pod.containers:
        requests: dict[str, list[int]] = {}
        for index, mount in container.mounts:
            path = clean_path(as_text(mount.get("mountPath")))
            # ROOT alone names no device. The toolkit needs no separator after it.
            if (
                as_text(mount.get("name")) in null_volumes
                and path != ROOT
                and path.startswith(ROOT)
            ):
                requests.setdefault(path, []).append(index)
        for path, indices in requests.items():
            yield _finding(container, path, indices)


def _finding(container: Container, path: str, indices: list[int]) -> Finding:
    mounts = (*container.path, "volumeMounts")
    return Finding(
        path=(*mounts, indices[0], "mountPath"),
        key=f"volumeMounts.{path}",
        message=(
            f"{container} mounts {NOTHING} at {display(path, 120)}, which requests "
            f"{_request(path.removeprefix(ROOT).removeprefix('/'))} from NVIDIA's runtime "
            "without the scheduler counting it"
        ),
        container=container,
        help=remove_and_request(container, "remove the mount"),
        fix=Fix("remove the mount", tuple(remove((*mounts, index)) for index in indices)),
    )


def _request(device: str) -> str:
    kind, _, rest = device.partition("/")
    if kind == "imex" and rest:
        return f"the IMEX channel {display(rest)}"
    if kind == "cdi" and rest:
        owner, _, name = rest.rpartition("/")
        return f"the CDI device {display(f'{owner}={name}')}"
    return f"the device {display(device)}"


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(HOST_PATH,))
