"""Commands that start containers with GPUs, in the text of a script or as a list of words.

Every function is linear in its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rules.gpu.device_files import is_gpu_file
from rules.gpu.shell_words import find_commands
from rules.gpu.visibility import Visibility, parse_visibility
from rules.gpu.volumes import clean_path
from rules.profile.records import VisibleDevices

_TOOLS = frozenset({"docker", "podman", "nerdctl", "ctr"})
_VERBS = frozenset({"run", "create"})
_START = r"(?<![\w.-])(?:docker|podman|nerdctl|ctr)(?=[ \t])"
# Before the verb: options of the tools themselves that take a word
_TOOL_OPTIONS = frozenset(
    {"-n", "--namespace", "-a", "--address", "-H", "--host", "-c", "--context", "--config"}
    | {"-l", "--log-level", "--connection", "--url", "--root", "--storage-driver"}
)
# Options of `run` that take no word
_FLAGS = frozenset(
    {"--rm", "--detach", "--interactive", "--tty", "--init", "--privileged", "--read-only"}
    | {"--publish-all", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--quiet"}
    | {"--disable-content-trust", "--replace", "--net-host", "--rootfs", "--null-io", "--no-hosts"}
    | {"--http-proxy", "--tls-verify", "--env-host", "--rmi", "--no-pivot", "--with-ns", "--cni"}
)
_FLAG_LETTERS = frozenset("ditPqR")
_OPTIONS = {"--gpus": "--gpus", "--runtime": "--runtime", "--device": "--device"}
_ENVIRONMENT = frozenset({"-e", "--env"})


class RunOption(NamedTuple):
    """An option of a command that starts a container.

    - `tool`: the command, such as `docker run`.
    - `name`, `value`: the option, or the variable that it sets; None if it only passes one on.
    - `is_variable`: whether `name` is a variable.
    - `word`: the index of the word of the command that has the option, from 0.
    """

    tool: str
    name: str
    value: str | None
    is_variable: bool
    word: int


class FoundOption(NamedTuple):
    """An option in a text, where it is, and where its command begins."""

    option: RunOption
    start: int
    end: int
    command: int


def find_run_options(text: str) -> Iterator[FoundOption]:
    """The options of all commands in `text` that may give a container GPUs."""
    if not any(tool in text for tool in _TOOLS):  # cheaper than the pattern
        return
    for words, spans in find_commands(text, _START):
        for option in run_options(words):
            yield FoundOption(option, *spans[option.word], spans[0][0])


def run_options(words: Sequence[str]) -> Iterator[RunOption]:
    """The options in `words`, of which the first is the tool, that may give a container GPUs."""
    tool = words[0].rpartition("/")[2] if words else ""
    position = 1
    while position < len(words) and words[position].startswith("-"):
        position += 2 if words[position] in _TOOL_OPTIONS else 1
    if words[position : position + 1] in (["container"], ["containers"]):
        position += 1
    verb = words[position] if position < len(words) else ""
    if tool not in _TOOLS or verb not in _VERBS:
        return
    command = f"{tool} {verb}"
    position += 1
    while position < len(words) and words[position].startswith("-") and words[position] != "--":
        word = words[position]
        name, equals, value = word.partition("=")
        index = position
        position += 1
        if not equals and not _is_flag(word):
            value = words[position] if position < len(words) else ""
            position += 1
        if option := _option(command, name, value, index):
            yield option


def gives_gpu(option: RunOption, known: VisibleDevices | None) -> bool:
    """Whether `option` gives the new container a GPU; `known` is what is known of its variable."""
    if option.is_variable:
        # A variable without a value is passed on, and nobody knows which it has.
        return known is not None and (
            option.value is None or parse_visibility(option.value, known) is Visibility.GRANTED
        )
    value = option.value or ""
    if option.name == "--device":
        return is_gpu_device(value)
    return option.name == "--gpus" or value.startswith("nvidia")


def is_gpu_device(text: str) -> bool:
    """Whether `text` is a device file of a GPU, perhaps with `:` and more, or a CDI device."""
    kind, equals, _ = text.partition("=")
    if equals and not text.startswith("/"):
        return "gpu" in kind.partition("/")[2]
    path = clean_path(text.partition(":")[0])
    return path.startswith("/dev/") and is_gpu_file(path)


def _option(command: str, name: str, value: str, index: int) -> RunOption | None:
    if name in _ENVIRONMENT:
        variable, equals, text = value.partition("=")
        return RunOption(command, variable, text if equals else None, is_variable=True, word=index)
    if name in _OPTIONS:
        return RunOption(command, name, value, is_variable=False, word=index)
    return None


def _is_flag(word: str) -> bool:
    if word.startswith("--"):
        return word in _FLAGS
    return len(word) > 1 and _FLAG_LETTERS.issuperset(word[1:])
