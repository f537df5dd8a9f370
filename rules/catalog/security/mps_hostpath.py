"""A pod mounts the node's directory of CUDA MPS.

What it does
------------
Finds hostPath volumes that some container mounts and that show the directories in which the daemon
of CUDA MPS and its clients meet: `/tmp/nvidia-mps`, `/run/nvidia/mps`, paths inside of them, and
any path that the container names in `CUDA_MPS_PIPE_DIRECTORY`. The log directory
`/var/log/nvidia-mps` alone is fine. So are the pods of DaemonSets, which may be the daemon itself.
All of `/tmp` is reported only with that variable: most pods that mount it want something else.

Why it matters
--------------
Programs that share a GPU by MPS are clients of a server on the node, which they find by these
pipes. A CUDA program that reaches them becomes a client too, although the scheduler has counted no
share for it. The daemon takes its commands from the same directory, among them the one that shuts
the server of all clients down.

NVIDIA's device plugin mounts what a container needs for its share itself. Some others leave the
volume to the pods, such as AWS's virtual GPU device plugin: switch the rule off where one runs.

References
----------
- https://docs.nvidia.com/deploy/mps/index.html
- NVIDIA/k8s-device-plugin, `README.md`, "With CUDA MPS"
- https://github.com/awslabs/aws-virtual-gpu-device-plugin#running-gpu-jobs
"""

from rules.base.json_values import as_text, display
from rules.base.traits import HOST_PATH
from rules.gpu.components import is_made_by_daemon_set
from rules.gpu.visibility import REQUEST_IN_LIMITS_ADVICE
from rules.gpu.volumes import (
    MAX_PATH_CHARACTERS,
    clean_path,
    containers_of,
    group_by_volume,
    host_mounts,
)
from rules.in_process.expression import OBJECT, all_of, any_of, not_, text
from rules.in_process.statement import CONTAINER, MOUNT, Statement
from rules.profile.platforms.node_paths import in_run
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# The default of the daemon, and where NVIDIA's device plugin runs it.
MPS_DIRECTORIES = ("/tmp/nvidia-mps/", *in_run("nvidia/mps/"))  # noqa: S108  # the node's
MPS_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each volume through which a container reaches the pipes of MPS."""
    mounts = host_mounts(pod)
    if not mounts:
        return
    named = {(c.path, _volume_of_mps_directory(c)) for c in pod.containers}
    mounts = [
        mount
        for mount in mounts
        if f"{mount.path}/".startswith(MPS_DIRECTORIES)
        or (mount.container.path, mount.volume) in named
    ]
    if mounts and not is_made_by_daemon_set(pod, context):
        for group in group_by_volume(mounts):
            mount = group[0]
            yield Finding(
                path=mount.field,
                key=mount.key,
                message=_message(mount.container, display(mount.path), display(mount.volume)),
                containers=containers_of(group),
                help=_ADVICE,
            )


def _message(container: object, path: object, volume: object) -> str:
    return (
        f"{container} sees {path} of the node through the volume {volume}, and with it the pipes "
        "of an MPS daemon, which serves everybody who shares a GPU by it"
    )


_ADVICE = (
    f"remove the volume and its mounts; for a share of a GPU, {REQUEST_IN_LIMITS_ADVICE}: "
    "NVIDIA's device plugin mounts the rest"
)


def _volume_of_mps_directory(container: Container) -> str:
    """The volume in which the directory is that the variable of `container` names; or empty.

    Of several mounts that lead there, the deepest hides the others.
    """
    named, found, deepest = container.env_value(MPS_VARIABLE), "", ""
    if named and len(named) <= MAX_PATH_CHARACTERS:
        directory = clean_path(named)
        for _, mount in container.mounts:
            path = as_text(mount.get("mountPath"))
            mounted = clean_path(path[: MAX_PATH_CHARACTERS + 1]) if path else ""
            leads_there = mounted and f"{directory}/".startswith(f"{mounted.rstrip('/')}/")
            if leads_there and len(mounted) > len(deepest):
                found, deepest = as_text(mount.get("name")), mounted
    return found


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    path = MOUNT.path + "/"
    is_of_mps = any_of(*(path.startsWith(directory) for directory in MPS_DIRECTORIES))
    return (
        Statement(
            "volume",
            all_of(not_(OBJECT.isDaemon), is_of_mps),
            text(_message(CONTAINER.text, MOUNT.shown, MOUNT.shownVolume)),
            _ADVICE,
            leaves_out=f"it does not read {MPS_VARIABLE}",
        ),
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(HOST_PATH,))
