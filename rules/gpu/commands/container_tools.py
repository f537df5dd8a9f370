"""The commands of docker and its like that start containers with GPUs.

Every function is linear in its input. Tests hold the words of docker against its own program.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rules.base.json_values import display
from rules.finding import Finding
from rules.gpu.commands.options import Argument, CommandLine
from rules.gpu.commands.scripts import compiled_pattern, find_commands
from rules.gpu.visibility import Visibility, parse_visibility
from rules.gpu.volumes import (
    clean_path,
    is_accelerator_kind,
    is_device_request,
    is_gpu_file,
)
from rules.objects.file_settings import ContainerSetting
from rules.profile.profile import VisibleDevices

_CONTAINER_TOOLS = frozenset({"docker", "nvidia-docker", "podman", "nerdctl", "ctr"})
# A script around docker that adds `--runtime=nvidia`: NVIDIA/nvidia-docker, nvidia-docker2.
_NVIDIA_DOCKER = "nvidia-docker"
# Programs that start the program which is named behind their own options.
_WRAPPER_PROGRAMS = frozenset(
    {"chroot", "nsenter", "sudo", "env", "exec", "nice", "nohup", "setsid", "stdbuf", "systemd-run"}
    | {"timeout", "tini", "dumb-init", "unshare", "time"}
)
_STARTING_VERBS = frozenset({"run", "create"})
_TOOL_NAME_PATTERN = r"(?:(?:nvidia-)?docker|podman|nerdctl|ctr)"
# A name in quotes, which may be escaped for another shell, may have its path in them.
_CONTAINER_TOOL_PATTERN = (
    rf"(?<![\w.-])(?:{_TOOL_NAME_PATTERN}"
    rf"|(\\?[\"'])(?:[^\s\"'\\]{{0,200}}/)?{_TOOL_NAME_PATTERN}\1)(?=[ \t])"
)
# What `run` and `create` may stand behind, as in `docker container run` and `ctr c create`
_NOUNS = frozenset({"container", "containers", "c"})
# Before them: options of the tools themselves that take a word
_TOOL_OPTIONS_WITH_VALUE = frozenset(
    {"-H", "--host", "-c", "--context", "--config", "-l", "--log-level"}
    | {"--tlscacert", "--tlscert", "--tlskey"}  # of docker
    | {"--connection", "--url", "--identity", "--ssh", "--tls-ca", "--tls-cert", "--tls-key"}
    | {"--tls-details", "--out", "--module", "--cgroup-manager", "--cpu-profile", "--conmon"}
    | {"--memory-profile", "--network-config-dir", "--default-mounts-file", "--events-backend"}
    | {"--hooks-dir", "--cdi-spec-dir", "--max-workers", "--network-backend", "--root", "--runroot"}
    | {"--registries-conf", "--imagestore", "--pull-option", "--runtime", "--runtime-flag"}
    | {"--storage-driver", "--storage-opt", "--tmpdir", "--volumepath"}  # of podman
    | {"-n", "--namespace", "-a", "--address", "--timeout", "--connect-timeout"}  # of ctr
    | {"--snapshotter", "--cni-path", "--cni-netconfpath", "--data-root", "--hosts-dir"}
    | {"--host-gateway-ip", "--bridge-ip", "--cdi-spec-dirs", "--userns-remap"}  # of nerdctl
)
_TOOL_SHORT_OPTION_PATTERN = r"-[Dr]*([Hclna])"
# ctr also reads options between the image and the name of the container.
_WORDS_BEFORE_OPTIONS = {"ctr": 1}
# It takes one dash before any name, and no letters together.
_ONE_DASH_PATTERN = r"^-(?=[a-z][a-z-]+)"
_VOLUME_OPTIONS = frozenset({"-v", "--volume", "--mount"})
_GPU_OPTIONS = frozenset({"--gpus", "--runtime", "--device"}) | _VOLUME_OPTIONS
# The source and the target of a volume. A colon in a placeholder, as in `${A:-b}`, parts nothing.
_VOLUME_PATTERN = r"((?:\$\{[^{}]*+\}|\{\{[^{}]*+\}\}|[^:])*+):([^:]*+)"
# By these keys, whatever their case, `--mount` says what is mounted and where.
_SOURCE_KEYS = frozenset({"source", "src"})
_TARGET_KEYS = frozenset({"target", "destination", "dst"})
_ENVIRONMENT_OPTIONS = frozenset({"-e", "--env"})
# Options of `run` that take no word
_RUN_FLAGS = frozenset(
    {"--rm", "--detach", "--interactive", "--tty", "--init", "--privileged", "--read-only"}
    | {"--publish-all", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--quiet"}
    | {"--disable-content-trust", "--use-api-socket", "--help"}  # of docker
    | {"--env-host", "--http-proxy", "--no-hostname", "--no-hosts", "--passwd", "--replace"}
    | {"--read-only-tmpfs", "--rmi", "--rootfs", "--tls-verify", "--unsetenv-all"}  # of podman
    | {"--null-io", "--cni", "--sync-fs", "--remap-labels", "--privileged-without-host-devices"}
    | {"--runc-systemd-cgroup", "--net-host", "--allow-new-privs", "--seccomp", "--no-pivot"}
)
_RUN_LINE = CommandLine(_RUN_FLAGS, "ditPq", never_values=_GPU_OPTIONS | _ENVIRONMENT_OPTIONS)


class RunOption(NamedTuple):
    """An option of a command that starts a container.

    - `tool`: the command, such as `docker run`.
    - `name`, `value`: the option, or the variable that it sets; None if it only passes one on.
    - `is_variable`: whether `name` is a variable.
    - `word_index`: the index of the word of the command that has the option, from 0.
    """

    tool: str
    name: str
    value: str | None
    is_variable: bool
    word_index: int


class FoundOption(NamedTuple):
    """An option in a text, where it is, and where its command begins."""

    option: RunOption
    start: int
    end: int
    command_start: int


def find_run_options(text: str) -> Iterator[FoundOption]:
    """The options of all commands in `text` that may give a container GPUs."""
    if not any(tool in text for tool in _CONTAINER_TOOLS):  # cheaper than the pattern
        return
    for words, spans in find_commands(text, _CONTAINER_TOOL_PATTERN):
        for option in run_options(words):
            start, end = spans[option.word_index]
            yield FoundOption(option, start, end, command_start=spans[0][0])


def run_options(words: Sequence[str]) -> Iterator[RunOption]:
    """The options in `words` that may give a container GPUs.

    The first of them is the tool, or a program that starts it, such as `chroot` or `sudo`.
    """
    words = [_without_quotes(word) for word in words]
    first = _index_of_tool(words)
    tool = _program_name(words[first]) if words else ""
    if tool not in _CONTAINER_TOOLS:
        return
    position = _index_of_verb(words, first + 1)
    verb = words[position] if position < len(words) else ""
    if verb not in _STARTING_VERBS:
        return
    command = f"{tool} {verb}"
    if tool == _NVIDIA_DOCKER:
        yield RunOption(command, "--runtime", "nvidia", is_variable=False, word_index=first)
    others = _WORDS_BEFORE_OPTIONS.get(tool, 0)
    words = _with_two_dashes(words) if tool == "ctr" else words
    for argument in _RUN_LINE.read(words, position + 1):
        others -= not argument.name
        if others < 0:
            return
        if option := _gpu_or_variable_option(command, argument):
            yield option


def _with_two_dashes(words: Iterable[str]) -> list[str]:
    return [re.sub(_ONE_DASH_PATTERN, "--", word, count=1) for word in words]


def _index_of_verb(words: Sequence[str], position: int) -> int:
    """The index of `run`, `create` or another verb, behind the options of a tool."""
    short_option = compiled_pattern(_TOOL_SHORT_OPTION_PATTERN)
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        position += 2 if word in _TOOL_OPTIONS_WITH_VALUE or short_option.fullmatch(word) else 1
    has_noun = position < len(words) and words[position] in _NOUNS
    return position + has_noun


def _without_quotes(word: str) -> str:
    """`word` without quotes that are escaped for another shell, which stay in a word."""
    return word.replace("\\", "").replace('"', "").replace("'", "")


def _index_of_tool(words: Sequence[str]) -> int:
    """The index of the tool in `words`: the first word, or one behind a program that starts it."""
    if words and _program_name(words[0]) in _WRAPPER_PROGRAMS:
        return next(
            (i for i, word in enumerate(words) if _program_name(word) in _CONTAINER_TOOLS), 0
        )
    return 0


def _program_name(word: str) -> str:
    return word.rpartition("/")[2]


def gives_gpu(option: RunOption, known: VisibleDevices | None) -> bool:
    """Return whether `option` gives the new container a GPU.

    `known` is what is known of its variable.
    """
    if option.is_variable:
        # A variable without a value is passed on, and its value is not known.
        return known is not None and (
            option.value is None or parse_visibility(option.value, known) is Visibility.GRANTED
        )
    value = option.value or ""
    if option.name == "--device":
        return is_gpu_device(value)
    if option.name in _VOLUME_OPTIONS:
        return is_gpu_volume(value)
    return option.name == "--gpus" or value.startswith("nvidia")


def is_gpu_device(text: str) -> bool:
    """Return whether `text` is a GPU's device file, perhaps with `:` and more, or a CDI device."""
    kind, equals, _ = text.partition("=")
    if equals and not text.startswith("/"):
        return "/" in kind and is_accelerator_kind(kind)
    path = clean_path(text.partition(":")[0])
    return path.startswith("/dev/") and is_gpu_file(path)


def is_gpu_volume(text: str) -> bool:
    """Return whether `text`, of `--volume` or `--mount`, requests a GPU of NVIDIA's toolkit."""
    parts = compiled_pattern(_VOLUME_PATTERN).match(text)
    return _is_gpu_mount(text) or (parts is not None and is_device_request(parts[1], parts[2]))


def _is_gpu_mount(text: str) -> bool:
    """`is_gpu_volume` of fields with commas. Of keys that mean the same, Docker takes the last."""
    source = target = ""
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key.lower() in _SOURCE_KEYS:
            source = value
        elif key.lower() in _TARGET_KEYS:
            target = value
    return is_device_request(source, target)


def _gpu_or_variable_option(command: str, argument: Argument) -> RunOption | None:
    name, value, index = argument.name, argument.value, argument.first
    if name in _ENVIRONMENT_OPTIONS:
        variable, equals, text = value.partition("=")
        return RunOption(
            command, variable, text if equals else None, is_variable=True, word_index=index
        )
    if name in _GPU_OPTIONS:
        return RunOption(command, name, value, is_variable=False, word_index=index)
    return None


def findings_of_uncounted_gpus(setting: ContainerSetting, message: str) -> Iterator[Finding]:
    """Yield `setting` unless it is a variable that gives no GPU.

    `message` has `{holder}` and `{what}`, the setting with its value.
    """
    value, known = setting.value, setting.variable
    if known and value is not None and parse_visibility(value, known) is not Visibility.GRANTED:
        return
    what = f"{setting.name}={display(value)}" if value else setting.name
    yield Finding(
        path=(),
        key=setting.name,
        message=message.format(holder=setting.holder, what=what),
        help="on a cluster, run it as a pod that requests a GPU in resources.limits",
    )
