"""Read which commands of a script, and settings of a CI file, give GPUs or label nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lint.container_files.placed import PlacedSetting
from rules.gpu.label_commands import find_node_labels
from rules.gpu.scripts import RunOption, find_run_options, gives_gpu, run_options
from rules.objects.file_settings import ContainerSetting
from rules.objects.label_command import LabelCommand
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile

_VARIABLE = re.compile(
    r"^[ \t]*(?:-[ \t]+)?[\"']?(\w+_VISIBLE_\w+)[\"']?[ \t]*:[ \t]*[\"']?([^\s\"'#]*)", re.MULTILINE
)
# `container: {options: --gpus all}` of GitHub's jobs
_OPTIONS = re.compile(r"^[ \t]*options[ \t]*:[ \t]*[\"']?([^\n\"'#]*)", re.MULTILINE)


def script_settings(
    text: str, file: ObjectRef, profile: Profile, *, is_ci: bool
) -> Iterator[PlacedSetting]:
    """The options of commands in `text` that concern GPUs, and if it `is_ci` also its variables."""
    for found in find_run_options(text):
        if setting := _setting(found.option, file, profile):
            yield PlacedSetting(setting, found.start, found.end, found.command)
    for label in find_node_labels(text):
        command = LabelCommand(file, label.name, label.value, label.overwrites)
        yield PlacedSetting(command, *label.span, label.command)
    for match in _VARIABLE.finditer(text) if is_ci else ():
        known = profile.visible_variable(match[1])
        if known:
            setting = ContainerSetting(file, "a job", match[1], match[2], known)
            yield PlacedSetting(setting, match.start(1), match.end(), match.start(1))
    for match in _OPTIONS.finditer(text) if is_ci else ():
        for option in run_options(["docker", "run", *match[1].split()]):
            if setting := _setting(option._replace(tool="a job"), file, profile):
                yield PlacedSetting(setting, *match.span(1), match.start(1))


def _setting(option: RunOption, file: ObjectRef, profile: Profile) -> ContainerSetting | None:
    """The setting that `option` is, None if it gives no GPU."""
    known = profile.visible_variable(option.name) if option.is_variable else None
    if not gives_gpu(option, known):
        return None
    holder = option.tool if option.tool == "a job" else f"`{option.tool}`"
    return ContainerSetting(file, holder, option.name, option.value, known)
