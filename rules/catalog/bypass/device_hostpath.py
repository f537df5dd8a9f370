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
fine.

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
from rules.gpu.components import is_made_by_daemon_set
from rules.gpu.devices import uses_gpu_runtime
from rules.gpu.images import maker_of_image
from rules.gpu.visibility import (
    NODE_DEBUGGER_ADVICE,
    REQUEST_IN_LIMITS_ADVICE,
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
from rules.in_process.components import is_node_debugger as is_debugger
from rules.in_process.images import maker_of_file as maker_of_file_in_cel
from rules.in_process.statement import SUB_PATHS, Statement, cel, concat
from rules.in_process.variables import remove_and_request_advice as advise
from rules.placement.gpu_nodes import GPU_WORD, excludes_nvidia, is_for_gpus
from rules.profile.platforms.makers import (
    ANY_ACCELERATOR,
    NVIDIA,
    Maker,
    maker_of_file,
)
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

DEVICE_FOLDER = "/dev"
ADVICE = "remove the volume; "
SOURCE = " comes from resources.limits"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each volume through which a container sees GPU device files."""
    mounts = [
        m for m in host_mounts(pod) if _shows_other_devices_too(m.path) or is_gpu_file(m.path)
    ]
    if mounts and not _is_suspect(pod, context):
        mounts = [mount for mount in mounts if not _shows_other_devices_too(mount.path)]
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


def _action(mount: HostMount) -> Action:
    opens_devices = mount.container.has_sys_admin or mount.path == DEVICE_FOLDER
    return Action.DENY if opens_devices else Action.WARN


def _what_it_shows(pod: Pod, path: str) -> str:
    if is_passthrough_file(path):
        return "perhaps a GPU"
    if path in FOLDERS_ABOVE_DEVICES:
        return "accelerators" if excludes_nvidia(pod) else "GPUs"
    return _device_word(maker_of_file(path) or NVIDIA)


def _device_word(maker: Maker) -> str:
    return "a GPU" if maker.is_gpu else "an accelerator"


def _device_advice(maker: Maker) -> str:
    """Return from where a container gets a device of `maker` instead."""
    example = f" (such as {maker.request})" if maker.request else ""
    return f"{ADVICE}{_device_word(maker)}{SOURCE}{example}"


def _advice(pod: Pod, mount: HostMount) -> str:
    if is_node_debugger(pod):
        return NODE_DEBUGGER_ADVICE
    if mount.container.role == "ephemeral":
        return remove_and_request_advice(mount.container, "remove the mount")
    if maker := maker_of_file(mount.path):
        return _device_advice(maker)
    if excludes_nvidia(pod):
        return _device_advice(ANY_ACCELERATOR)
    makers = (maker_of_image(container.image) for container in pod.containers)
    return _device_advice(next(filter(None, makers), NVIDIA))


def _finding(pod: Pod, mount: HostMount, containers: tuple[Container, ...]) -> Finding:
    container, path = mount.container, mount.path
    message = (
        f"{container} sees {display(path)} of the node through the volume {display(mount.volume)}, "
        f"and with it {_what_it_shows(pod, path)} that the scheduler has not counted"
    )
    return Finding(
        path=mount.field,
        key=mount.key,
        message=message,
        containers=containers,
        help=_advice(pod, mount),
        action=_action(mount),
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    is_passed = f"m.path.matches({cel(f'^(?:{PASSED_THROUGH})$')})"
    serves_others = (
        f"(m.path in {cel(FOLDERS_ABOVE_DEVICES)} || m.path.startsWith('/dev/vfio') && {is_passed})"
    )
    is_suspect = (
        "($isForGpus || $usesGpuRuntime || $excused.size() > 0"
        " || !$isDaemon && $withMaker.size() > 0)"
    )
    where = f"({serves_others} ? {is_suspect} : m.isGpuFile)"
    opens = f"(c.sysAdmin || m.path == {cel(DEVICE_FOLDER)})"
    # The worst mount of a volume stands for it.
    other_opens = (
        f"$containers.exists(c, c.mounts.exists(m, m.volume == w.name && {where} && {opens}))"
    )
    file_maker = maker_of_file_in_cel("m.path")
    device = f'(maker.shown[1] == {cel(GPU_WORD)} ? "a GPU" : "an accelerator")'
    of_file = f"{file_maker}.map(maker, {device})"
    what = (
        f'(m.path in {cel(FOLDERS_ABOVE_DEVICES)} ? ($excludesNvidia ? "accelerators" : "GPUs")'
        f' : m.path.startsWith("/dev/vfio") && {is_passed} ? "perhaps a GPU"'
        f' : ({of_file} + ["a GPU"])[0])'
    )
    message = (
        f'c.text + " sees " + m.shown + " of the node through the volume "'
        f' + m.shownVolume + ", and with it " + {what}'
        ' + " that the scheduler has not counted"'
    )
    mount = advise(cel("remove the mount"), cel(REQUEST_IN_LIMITS_ADVICE))
    of_others = "($excludesNvidia ? [] : $makerOfImages + [variables.makers[0]])"
    request = '(maker.shown[2] == "" ? "" : " (such as " + string(maker.shown[2]) + ")")'
    of_maker = concat(cel(ADVICE), device, cel(SOURCE), request)
    of_any = cel(_device_advice(ANY_ACCELERATOR))
    advice = (
        f'({is_debugger()} ? {cel(NODE_DEBUGGER_ADVICE)} : c.role == "ephemeral" ? {mount}'
        f" : (({file_maker} + {of_others}).map(maker, {of_maker}) + [{of_any}])[0])"
    )
    worst = Statement("volume", f"{where} && {opens}", message, advice, leaves_out=SUB_PATHS)
    return worst, worst._replace(where=f"{where} && !{other_opens}", action='"warn"')


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(HOST_PATH,))
