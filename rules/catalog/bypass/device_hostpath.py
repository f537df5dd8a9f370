"""A volume shows a container the device files of GPUs.

What it does
------------
Finds hostPath volumes that some container mounts and that show it device files of GPUs or other
accelerators, such as `/dev/nvidia0`, `/dev/char/195:0`, `/dev/dri`, `/dev/kfd` or `/dev/davinci0`,
and those below the root of NVIDIA's driver, `/run/nvidia/driver`. A mount of all of `/dev`, of `/`,
or of `/dev/vfio`, which serves devices of every kind, is reported only in pods that have to do with
GPUs: pods that request a GPU, select GPU nodes, name a GPU runtime class or run an image that is
known to use CUDA, ROCm or another maker's devices, and exporters of GPU metrics for which the
profile says that some rules are not run. The image does not count in pods that a DaemonSet creates:
they may be agents, such as drivers of network cards. `/dev/shm`, `/dev/infiniband` and the like are
fine. So are device files of other makers than NVIDIA that an agent of such a maker sees, as Intel's
device plugins do, if nothing lets it open them: the container of a DaemonSet whose image is in the
maker's own folder, directly below the registry, and has a name such as `plugin` or `exporter`, and
that runs the program of its image, without a command, a hook or a probe of its own.

Why it matters
--------------
A process that can open the device file of a GPU can use that GPU, even if the scheduler has given
it to another pod. A privileged container may open every device file it sees, and one with the
capability `SYS_ADMIN` can lift the device rules that the runtime has set for it, so there the rule
denies. It also denies a mount of all of `/dev`, in which root can replace the files of the node. In
other containers the runtime's device rules prevent access unless something lifts them, so the rule
warns.

References
----------
- https://kubernetes.io/docs/concepts/storage/volumes/#hostpath
- https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
"""

from rules.base.json_values import display
from rules.base.traits import HOST_PATH
from rules.gpu.commands.own_programs import runs_own_program
from rules.gpu.components import is_made_by_daemon_set
from rules.gpu.devices import uses_gpu_runtime
from rules.gpu.images import is_agent_of_other_maker, maker_of_image
from rules.gpu.visibility import (
    NODE_DEBUGGER_ADVICE,
    is_node_debugger,
    remove_and_request_advice,
)
from rules.gpu.volumes import (
    FOLDERS_ABOVE_DEVICES,
    PASSED_THROUGH,
    HostMount,
    containers_of,
    group_by_volume,
    host_mounts,
    is_gpu_file,
    is_passthrough_file,
)
from rules.in_process import components, images, variables
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    Expression,
    all_of,
    any_of,
    choose,
    concat,
    is_in,
    not_,
    string,
    text,
)
from rules.in_process.statement import CONTAINER, MOUNT, SUB_PATHS, VOLUME, Statement
from rules.placement.gpu_nodes import GPU_WORD, excludes_nvidia, is_for_gpus
from rules.profile.platforms.makers import (
    ANY_ACCELERATOR,
    NVIDIA,
    Maker,
    maker_of_file,
)
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

DEVICE_FOLDER = "/dev"
GPU, ACCELERATOR, PERHAPS_GPU = "a GPU", "an accelerator", "perhaps a GPU"
GPUS, ACCELERATORS = "GPUs", "accelerators"
REMOVAL = "remove the mount"
_NO_PROGRAMS: frozenset[str] = frozenset()


def check(pod: Pod, context: Context) -> Findings:
    """Yield each volume through which a container sees GPU device files."""
    mounts = [
        m for m in host_mounts(pod) if _shows_other_devices_too(m.path) or is_gpu_file(m.path)
    ]
    if mounts and not _is_suspect(pod, context):
        mounts = [mount for mount in mounts if not _shows_other_devices_too(mount.path)]
    mounts = [mount for mount in mounts if not _is_of_agent(mount, pod, context)]
    for group in group_by_volume(mounts):
        yield _finding(pod, max(group, key=_action), containers_of(group))


def _shows_other_devices_too(path: str) -> bool:
    """Return whether `path` shows devices of other kinds too, and so need not be about GPUs."""
    return path in FOLDERS_ABOVE_DEVICES or is_passthrough_file(path)


def _is_suspect(pod: Pod, context: Context) -> bool:
    # An exporter from which some rules are excused sees the GPUs, and needs no other files.
    if is_for_gpus(pod) or uses_gpu_runtime(pod) or pod.excused_rules:
        return True
    has_image = any(maker_of_image(container.image) for container in pod.containers)
    return has_image and not is_made_by_daemon_set(pod, context)


def _is_of_agent(mount: HostMount, pod: Pod, context: Context) -> bool:
    """Return whether another maker's agent sees devices of such a maker, and cannot open them."""
    is_shown = is_passthrough_file(mount.path) or maker_of_file(mount.path) not in {None, NVIDIA}
    return (
        is_shown
        and _action(mount) is Action.WARN
        and is_made_by_daemon_set(pod, context)
        and is_agent_of_other_maker(mount.container.image)
        and runs_own_program(mount.container, _NO_PROGRAMS)
    )


def _action(mount: HostMount) -> Action:
    opens_devices = mount.container.has_sys_admin or mount.path == DEVICE_FOLDER
    return Action.DENY if opens_devices else Action.WARN


def _what_it_shows(pod: Pod, path: str) -> str:
    if is_passthrough_file(path):
        return PERHAPS_GPU
    if path in FOLDERS_ABOVE_DEVICES:
        return ACCELERATORS if excludes_nvidia(pod) else GPUS
    return _device_word(maker_of_file(path) or NVIDIA)


def _device_word(maker: Maker) -> str:
    return GPU if maker.is_gpu else ACCELERATOR


def _device_advice(maker: Maker) -> str:
    """Return from where a container gets a device of `maker` instead."""
    example = _example(maker.request) if maker.request else ""
    return _device_request(_device_word(maker), example)


def _device_request(device: object, example: object) -> str:
    return f"remove the volume; {device} comes from resources.limits{example}"


def _example(request: object) -> str:
    return f" (such as {request})"


def _advice(pod: Pod, mount: HostMount) -> str:
    if is_node_debugger(pod):
        return NODE_DEBUGGER_ADVICE
    if mount.container.role == "ephemeral":
        return remove_and_request_advice(mount.container, REMOVAL)
    if maker := maker_of_file(mount.path):
        return _device_advice(maker)
    if excludes_nvidia(pod):
        return _device_advice(ANY_ACCELERATOR)
    makers = (maker_of_image(container.image) for container in pod.containers)
    return _device_advice(next(filter(None, makers), NVIDIA))


def _finding(pod: Pod, mount: HostMount, containers: tuple[Container, ...]) -> Finding:
    container, path, volume = mount.container, mount.path, mount.volume
    what = _what_it_shows(pod, path)
    return Finding(
        path=mount.field,
        key=mount.key,
        message=_message(container, display(path), display(volume), what),
        containers=containers,
        help=_advice(pod, mount),
        action=_action(mount),
    )


def _message(container: object, path: object, volume: object, what: object) -> str:
    return (
        f"{container} sees {path} of the node through the volume {volume}, "
        f"and with it {what} that the scheduler has not counted"
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, m = CONTAINER, MOUNT
    # The worst mount of a volume stands for it.
    other_opens_devices = OBJECT.containers.exists(
        lambda c: c.mounts.exists(
            lambda m: all_of(
                m.volume == VOLUME.name, _shows_devices_in_cel(m), _opens_devices_in_cel(c, m)
            )
        )
    )
    is_of_agent = all_of(
        is_in(c.name, OBJECT.agentsOfOtherMakers),
        any_of(_is_passthrough_file_in_cel(m.path), _is_of_other_maker_in_cel(m.path)),
    )
    worst = Statement(
        "volume",
        where=all_of(_shows_devices_in_cel(m), _opens_devices_in_cel(c, m)),
        message=text(_message(c.text, m.shown, m.shownVolume, _what_it_shows_in_cel(m.path))),
        help=_advice_in_cel(c, m),
        leaves_out=SUB_PATHS,
    )
    others = all_of(_shows_devices_in_cel(m), not_(other_opens_devices), not_(is_of_agent))
    return worst, worst._replace(where=others, action="warn")


def _shows_devices_in_cel(mount: Expression) -> Expression:
    """Return whether `check` reports `mount`."""
    is_folder = is_in(mount.path, FOLDERS_ABOVE_DEVICES)
    is_suspect = any_of(
        OBJECT.isForGpus,
        OBJECT.usesGpuRuntime,
        OBJECT.excused.size() > 0,
        all_of(not_(OBJECT.isDaemon), OBJECT.withMaker.size() > 0),
    )
    shows_other_devices_too = any_of(is_folder, _is_passthrough_file_in_cel(mount.path))
    return choose((shows_other_devices_too, is_suspect), otherwise=mount.isGpuFile)


def _is_passthrough_file_in_cel(path: Expression) -> Expression:
    return all_of(path.startsWith("/dev/vfio"), path.matches(f"^(?:{PASSED_THROUGH})$"))


def _is_of_other_maker_in_cel(path: Expression) -> Expression:
    is_of_nvidia = POLICY.makers[0].files.exists(lambda f: path.matches(f))
    return all_of(images.maker_of_file(path).size() > 0, not_(is_of_nvidia))


def _opens_devices_in_cel(container: Expression, mount: Expression) -> Expression:
    """Return whether `_action` of `mount` is to deny."""
    return any_of(container.sysAdmin, mount.path == DEVICE_FOLDER)


def _what_it_shows_in_cel(path: Expression) -> Expression:
    word = concat([images.maker_of_file(path).map(_device_word_in_cel), [GPU]])[0]
    return choose(
        (
            is_in(path, FOLDERS_ABOVE_DEVICES),
            choose((OBJECT.excludesNvidia, ACCELERATORS), otherwise=GPUS),
        ),
        (_is_passthrough_file_in_cel(path), PERHAPS_GPU),
        otherwise=word,
    )


def _device_word_in_cel(maker: Expression) -> Expression:
    return choose((maker.shown[1] == GPU_WORD, GPU), otherwise=ACCELERATOR)


def _advice_in_cel(container: Expression, mount: Expression) -> Expression:
    def device_advice(maker: Expression) -> Expression:
        request = maker.shown[2]
        example = choose((request == "", ""), otherwise=text(_example(string(request))))
        return text(_device_request(_device_word_in_cel(maker), example))

    of_image = choose(
        (OBJECT.excludesNvidia, []), otherwise=concat([OBJECT.makerOfImages, [POLICY.makers[0]]])
    )
    makers = images.maker_of_file(mount.path) + of_image
    advice = concat([makers.map(device_advice), [_device_advice(ANY_ACCELERATOR)]])[0]
    return choose(
        (components.is_node_debugger(), NODE_DEBUGGER_ADVICE),
        (container.role == "ephemeral", variables.remove_and_request_advice(REMOVAL)),
        otherwise=advice,
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(HOST_PATH,))
