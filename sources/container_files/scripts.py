"""The commands in scripts and in files of CI systems that concern GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rules.gpu.commands.container_tools import find_run_options, run_options
from rules.gpu.commands.kubectl import find_kubectl_variables, find_node_labels
from rules.objects.file_settings import ContainerSetting, LabelCommand
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile
from sources.container_files.settings import LocatedSetting, setting_of_option

_VARIABLE_PATTERN = re.compile(
    r"^[ \t]*(?:-[ \t]+)?[\"']?(\w+_VISIBLE_\w+)[\"']?[ \t]*:[ \t]*[\"']?([^\s\"'#]*)", re.MULTILINE
)
# `container: {options: --gpus all}` of GitHub's jobs
_OPTIONS_PATTERN = re.compile(r"^[ \t]*options[ \t]*:[ \t]*[\"']?([^\n\"'#]*)", re.MULTILINE)


def script_settings(
    text: str, file: ObjectRef, profile: Profile, *, is_ci: bool
) -> Iterator[LocatedSetting]:
    """The options of commands in `text` that concern GPUs, and if it `is_ci` also its variables."""
    for found in find_run_options(text):
        if setting := setting_of_option(found.option, f"`{found.option.tool}`", file, profile):
            yield LocatedSetting(setting, found.start, found.end, found.command_start)
    for label in find_node_labels(text):
        command = LabelCommand(file, label.name, label.value, label.overwrites)
        start, end = label.span
        yield LocatedSetting(command, start, end, label.command_start)
    for name, value, (start, end), command_start in find_kubectl_variables(text):
        if known := profile.visible_variable(name):
            setting = ContainerSetting(file, "`kubectl set env`", name, value, known)
            yield LocatedSetting(setting, start, end, command_start)
    if is_ci:
        yield from _settings_of_ci_jobs(text, file, profile)


def _settings_of_ci_jobs(text: str, file: ObjectRef, profile: Profile) -> Iterator[LocatedSetting]:
    """Yield the settings that a CI system gives the containers of its jobs."""
    for match in _VARIABLE_PATTERN.finditer(text):
        known = profile.visible_variable(match[1])
        if known:
            setting = ContainerSetting(file, "a job", match[1], match[2], known)
            yield LocatedSetting(setting, match.start(1), match.end(), match.start(1))
    for match in _OPTIONS_PATTERN.finditer(text):
        for option in run_options(["docker", "run", *match[1].split()]):
            if job := setting_of_option(option, "a job", file, profile):
                yield LocatedSetting(job, match.start(1), match.end(1), match.start(1))
