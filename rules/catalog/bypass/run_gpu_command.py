"""A container starts another one with GPUs, for example through the node's container runtime.

What it does
------------
Checks the containers of pods that mount a path of the node, and of other pods those that are
privileged and have `nvidia` or `torch` in a command, as in `--device nvidia.com/gpu=all`. Finds in
their `command` and `args`, and in the commands of their hooks (`postStart`, `preStop`) and probes,
the commands `run` and `create` of docker, podman and nerdctl, and `ctr run`, with an option that
gives the new container GPUs: `--gpus`, `--device` of a GPU, `--runtime nvidia`, a visible-devices
variable, or a volume of `/dev/null`, or of a variable, at `/var/run/nvidia-container-devices/…`;
and every `nvidia-docker run`, which adds `--runtime=nvidia`. It reads a list of words, also behind
`chroot`, `nsenter`, `sudo` and their like, as well as the text of a shell, and only the options
before the image.

Of a pod it reads at most 100,000 characters. A container whose commands do not fit in these is
reported as well, because what they start is not known.

Why it matters
--------------
The new container is unknown to the scheduler and to admission control: it gets GPUs that are
allocated to pods, and no quota counts it. A privileged container needs no runtime of the node: what
podman starts in it can have the device files that it sees.

References
----------
- https://docs.docker.com/reference/cli/docker/container/run/
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from rules.base.json_values import Path, display
from rules.base.traits import GPU_PROGRAM, HOST_PATH
from rules.gpu.commands.container_tools import RunOption, find_run_options, gives_gpu, run_options
from rules.gpu.commands.of_containers import (
    EXEC_PATHS,
    MAX_COMMAND_CHARACTERS,
    Command,
    bounded_commands,
)
from rules.gpu.visibility import remove_and_request_advice
from rules.gpu.volumes import host_mounts
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the first such option of each container, and each container that was not read."""
    reaches_node = bool(host_mounts(pod))
    able = [each for each in pod.containers if reaches_node or each.is_privileged]
    for container, commands in bounded_commands(able):
        found = (
            _finding_of_unread_commands(container)
            if commands is None
            else _finding_of_first_option(container, commands)
        )
        if found:
            yield found


def _finding_of_first_option(container: Container, commands: Sequence[Command]) -> Finding | None:
    for path, option in chain.from_iterable(map(_run_options, commands)):
        if gives_gpu(option, container.profile.visible_variable(option.name)):
            what = f"{option.name}={display(option.value)}" if option.value else option.name
            return Finding(
                path=path,
                key=f"run.{option.name}",
                message=(
                    f"{container} runs `{option.tool}` with {what}: the new container gets "
                    "GPUs that the scheduler has not counted"
                ),
                container=container,
                help=remove_and_request_advice(container, "remove the command"),
            )
    return None


def _finding_of_unread_commands(container: Container) -> Finding:
    fields = ("args", "command", *(path[0] for path in EXEC_PATHS))
    return Finding(
        path=(*container.path, next(field for field in fields if container.raw.get(field))),
        key="run",
        message=(
            f"{container} has commands that were not read, because those of the pod have more than "
            f"{MAX_COMMAND_CHARACTERS:,} characters: they may start containers with GPUs that the "
            "scheduler has not counted"
        ),
        container=container,
        help="shorten the commands, or give the pod no path of the node and no privileges",
    )


def _run_options(command: Command) -> Iterator[tuple[Path, RunOption]]:
    for option in run_options(command.texts):
        yield command.path(option.word_index), option
    for path, text in command:
        for found in find_run_options(text):
            yield path, found.option


in_process = "it reads command lines"


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(HOST_PATH | GPU_PROGRAM,))
