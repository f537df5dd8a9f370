"""A container starts another one with GPUs through the node's container runtime.

What it does
------------
Checks pods that mount a path of the node. Finds in `command` and `args` of their containers the
commands `run` and `create` of docker, podman and nerdctl, and `ctr run`, with an option that gives
the new container GPUs: `--gpus`, `--device` of a GPU, `--runtime nvidia`, or a visible-devices
variable. It reads a list of words as well as the text of a shell, and only the options before the
image. Of a pod it reads at most 100,000 characters.

Why it matters
--------------
The new container is unknown to the scheduler and to admission control: it gets GPUs that are
allocated to pods, and no quota counts it.

References
----------
- https://docs.docker.com/reference/cli/docker/container/run/
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.base.json_patch import Path
from rules.finding import Action, Finding
from rules.gpu.advice import remove_and_request
from rules.gpu.commands import CommandText, commands_of
from rules.gpu.host_paths import host_mounts
from rules.gpu.run_commands import RunOption, find_run_options, gives_gpu, run_options
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import HOST_PATH


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield the first such option of each container."""
    for container, words in commands_of(pod.containers if host_mounts(pod) else ()):
        for path, option in _options(words):
            if gives_gpu(option, container.profile.visible_variable(option.name)):
                what = f"{option.name}={display(option.value)}" if option.value else option.name
                yield Finding(
                    path=path,
                    key=f"run.{option.name}",
                    message=(
                        f"{container} runs `{option.tool}` with {what}: the new container gets "
                        "GPUs that the scheduler has not counted"
                    ),
                    container=container,
                    help=remove_and_request(container, "remove the command"),
                )
                break


def _options(words: list[CommandText]) -> Iterator[tuple[Path, RunOption]]:
    for option in run_options([text for _, text in words]):
        yield words[option.word][0], option
    for path, text in words:
        for found in find_run_options(text):
            yield path, found.option


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(HOST_PATH,))
