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
from rules.gpu.visibility import REQUEST_IN_LIMITS_ADVICE, VOID_VALUE, remove_and_request_advice
from rules.gpu.volumes import DEVICE_LIST_PATH, clean_path, host_path
from rules.in_process.statement import Statement, cel, shown
from rules.in_process.variables import remove_and_request_advice as advise
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


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    below = f"l.path.substring({len(DEVICE_LIST_PATH)})"
    device = f"[{below}].map(t, t.startsWith('/') ? t.substring(1) : t)"
    # `owner/name` as `owner=name`.
    name = (
        "(t.contains('/') ? t.substring(0, t.lastIndexOf('/')) + '=' +"
        " t.substring(t.lastIndexOf('/') + 1) : '=' + t)"
    )
    kind = (
        f"{device}.map(t, t.startsWith('imex/') && t.size() > 5"
        f" ? 'the IMEX channel ' + {shown('t.substring(5)')}"
        " : t.startsWith('cdi/') && t.size() > 4 ? 'the CDI device ' + [t.substring(4)].map(t,"
        f" {shown(name)})[0] : 'the device ' + {shown('t')})[0]"
    )
    is_void = f"{device}[0] == {cel(VOID_VALUE)}"
    void = cel("which hides no GPU, and with which older toolkits of NVIDIA do not start it")
    request = (
        f'(l.isNull ? "which" : "which, if it leads to /dev/null,") + " requests " + {kind}'
        ' + " from NVIDIA\'s runtime without the scheduler counting it"'
    )
    message = (
        f'c.text + " mounts " + (l.isNull ? {cel(NULL_DEVICE)} : "the volume " + l.shownVolume)'
        f' + " at " + {shown("l.path", 120)} + ", " + ({is_void} ? {void} : {request})'
    )
    advice = advise(cel("remove the mount"), cel(REQUEST_IN_LIMITS_ADVICE))
    action = f'({is_void} ? "warn" : "deny")'
    missing = "a path with more than eight `..` counts as one of a list of devices"
    return (Statement("deviceList", "true", message, advice, action, leaves_out=missing),)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(DEVICE_LIST_MOUNT,))
