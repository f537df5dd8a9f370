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
from rules.gpu.visibility import VOID_VALUE, remove_and_request_advice
from rules.gpu.volumes import DEVICE_LIST_PATH, NULL_DEVICE, clean_path, host_path
from rules.in_process import variables
from rules.in_process.expression import Expression, all_of, choose, let, text
from rules.in_process.statement import CONTAINER, DEVICE_LIST, Statement, shown
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

MAX_SHOWN = 120
REMOVAL = "remove the mount"
IMEX_CHANNEL, CDI_DEVICE, DEVICE = "the IMEX channel", "the CDI device", "the device"
WITH_NULL, WITH_ANOTHER = "which", "which, if it leads to /dev/null,"
EFFECT_OF_VOID = "which hides no GPU, and with which older toolkits of NVIDIA do not start it"


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
            sources[path] = NULL_DEVICE if is_null else sources.get(path, _volume(display(name)))
        for path, indices in requests.items():
            yield _finding(container, path, indices, sources[path])


def _finding(container: Container, path: str, indices: list[int], source: str) -> Finding:
    mounts = (*container.path, "volumeMounts")
    device = path.removeprefix(DEVICE_LIST_PATH).removeprefix("/")
    effect = EFFECT_OF_VOID
    if device != VOID_VALUE:
        when = WITH_NULL if source == NULL_DEVICE else WITH_ANOTHER
        effect = _request(when, _requested_device(device))
    return Finding(
        path=(*mounts, indices[0], "mountPath"),
        key=f"volumeMounts.{path}",
        message=_message(container, source, display(path, MAX_SHOWN), effect),
        container=container,
        help=remove_and_request_advice(container, REMOVAL),
        fix=Fix(REMOVAL, tuple(remove((*mounts, index)) for index in indices)),
        action=Action.WARN if device == VOID_VALUE else Action.DENY,
    )


def _message(container: object, source: object, path: object, effect: object) -> str:
    return f"{container} mounts {source} at {path}, {effect}"


def _volume(name: object) -> str:
    return f"the volume {name}"


def _request(when: object, device: object) -> str:
    return f"{when} requests {device} from NVIDIA's runtime without the scheduler counting it"


def _requested_device(device: str) -> str:
    kind, _, rest = device.partition("/")
    if kind == "imex" and rest:
        return f"{IMEX_CHANNEL} {display(rest)}"
    if kind == "cdi" and rest:
        owner, _, name = rest.rpartition("/")
        return f"{CDI_DEVICE} {display(f'{owner}={name}')}"
    return f"{DEVICE} {display(device)}"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, mount = CONTAINER, DEVICE_LIST
    below = mount.path.substring(len(DEVICE_LIST_PATH))
    is_void = let(below, _without_slash) == VOID_VALUE
    source = choose((mount.isNull, NULL_DEVICE), otherwise=text(_volume(mount.shownVolume)))
    when = choose((mount.isNull, WITH_NULL), otherwise=WITH_ANOTHER)
    request = text(_request(when, let(below, _without_slash, _requested_device_in_cel)))
    effect = choose((is_void, EFFECT_OF_VOID), otherwise=request)
    statement = Statement(
        "deviceList",
        where=True,
        message=text(_message(c.text, source, shown(mount.path, MAX_SHOWN), effect)),
        help=variables.remove_and_request_advice(REMOVAL),
        action=choose((is_void, "warn"), otherwise="deny"),
        leaves_out="a path with more than eight `..` counts as one of a list of devices",
    )
    return (statement,)


def _without_slash(path: Expression) -> Expression:
    return choose((path.startsWith("/"), path.substring(1)), otherwise=path)


def _requested_device_in_cel(device: Expression) -> Expression:
    def rest(kind: str) -> Expression:
        return device.substring(len(kind))

    def is_of(kind: str) -> Expression:
        return all_of(device.startsWith(kind), device.size() > len(kind))

    def with_owner(name: Expression) -> Expression:
        """Return `owner/name` as `owner=name`."""
        slash = name.lastIndexOf("/")
        owner_and_name = name.substring(0, slash) + "=" + name.substring(slash + 1)
        return choose((name.contains("/"), owner_and_name), otherwise="=" + name)

    name = let(rest("cdi/"), lambda t: shown(with_owner(t)))
    return choose(
        (is_of("imex/"), text(f"{IMEX_CHANNEL} {shown(rest('imex/'))}")),
        (is_of("cdi/"), text(f"{CDI_DEVICE} {name}")),
        otherwise=text(f"{DEVICE} {shown(device)}"),
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(DEVICE_LIST_MOUNT,))
