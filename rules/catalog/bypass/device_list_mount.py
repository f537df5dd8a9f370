"""A container requests GPUs by mounting /dev/null under a magic path.

What it does
------------
Finds volume mounts at a path which begins with `/var/run/nvidia-container-devices`, after gpuward
has normalized the path as the container runtime does. Every volume counts but an `emptyDir`: the
pod does not show where a claimed volume leads, and a path of the node may be another name for
`/dev/null`, such as `/dev/char/1:3`, or `/proc/1/fd/0`.

The rule only warns about `void` in place of a device, as `NVIDIA_VISIBLE_DEVICES` may have it. It
hides nothing.

Why it matters
--------------
Where NVIDIA's container toolkit accepts device lists as volume mounts, each mount of `/dev/null`
requests the device named by the rest of the path. No resource limit counts it. The toolkit reads
the mounts before the environment, so `NVIDIA_VISIBLE_DEVICES=void` does not help. For a mount of
`void` the toolkit reads the environment since version 1.20; before, it looks for a device of that
name, and does not start the container.

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
from rules.base.traits import DEVICE_LIST_MOUNT
from rules.gpu.visibility import VOID_VALUE
from rules.gpu.visibility_edits import remove_and_request_advice
from rules.gpu.volumes import DEVICE_LIST_PATH, clean_path, host_path
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

NULL_DEVICE = "/dev/null"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each path at which a mount requests a device."""
    volumes = {as_text(volume.get("name")): volume for _, volume in pod.volumes}
    for container in pod.containers:
        requests: dict[str, list[int]] = {}
        sources: dict[str, str] = {}
        for index, mount in container.mounts:
            path = clean_path(as_text(mount.get("mountPath")))
            # The directory alone names no device. The toolkit needs no separator after it.
            if path == DEVICE_LIST_PATH or not path.startswith(DEVICE_LIST_PATH):
                continue
            name = as_text(mount.get("name"))
            volume = volumes.get(name, {})
            if "emptyDir" in volume and "hostPath" not in volume:
                continue
            requests.setdefault(path, []).append(index)
            is_null = host_path(volume) == NULL_DEVICE
            sources[path] = (
                NULL_DEVICE if is_null else sources.get(path, f"the volume {display(name)}")
            )
        for path, indices in requests.items():
            yield _finding(container, path, indices, sources[path])


def _finding(container: Container, path: str, indices: list[int], source: str) -> Finding:
    mounts = (*container.path, "volumeMounts")
    device = path.removeprefix(DEVICE_LIST_PATH).removeprefix("/")
    if device == VOID_VALUE:
        effect = "which hides no GPU, and with which older toolkits of NVIDIA do not start it"
    else:
        when = "which" if source == NULL_DEVICE else "which, if it leads to /dev/null,"
        request = f"{when} requests {_requested_device(device)} from NVIDIA's runtime"
        effect = f"{request} without the scheduler counting it"
    return Finding(
        path=(*mounts, indices[0], "mountPath"),
        key=f"volumeMounts.{path}",
        message=f"{container} mounts {source} at {display(path, 120)}, {effect}",
        container=container,
        help=remove_and_request_advice(container, "remove the mount"),
        fix=Fix("remove the mount", tuple(remove((*mounts, index)) for index in indices)),
        action=Action.WARN if device == VOID_VALUE else Action.DENY,
    )


def _requested_device(device: str) -> str:
    kind, _, rest = device.partition("/")
    if kind == "imex" and rest:
        return f"the IMEX channel {display(rest)}"
    if kind == "cdi" and rest:
        owner, _, name = rest.rpartition("/")
        return f"the CDI device {display(f'{owner}={name}')}"
    return f"the device {display(device)}"


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(DEVICE_LIST_MOUNT,))
