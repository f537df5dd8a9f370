"""The commands in a script that start containers with GPUs, or label nodes.

Every function is linear in its input.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from rules.base.json_values import display
from rules.finding import Finding
from rules.gpu.visibility import Visibility, parse_visibility
from rules.gpu.volumes import (
    clean_path,
    is_accelerator_kind,
    is_device_request,
    is_gpu_file,
)
from rules.objects.file_settings import ContainerSetting
from rules.profile.profile import VisibleDevices

# The words of a command: quoted texts, escaped characters, what another command prints, as in
# `$(id -u):$(id -g)`, and others, up to what ends the command.
_WORD_PATTERN = r"""[ \t]* (?: \\\r?\n [ \t]* )*
    ((?: "(?:[^"\\]|\\.){0,4096}" | '[^']{0,4096}' | \\[^\n]
       | \$\( (?: [^()\n] | \([^()\n]{0,100}\) ){0,300} \) | [^\s"'\\;|&()<>`] )+)"""
_MAX_WORDS = 200
# A word up to a quote behind a letter, and a quotation of several lines.
_CLOSING_QUOTE_PATTERN = r"""[^\s"']*[\w./](?=(?:"[^"\n]*\n|'[^'\n]*\n))"""
_QUOTE_MARK_PATTERN = r"""\\.|["']"""
_QUOTATION_PATTERN_BY_QUOTE = {'"': r'(?:[^"\\]++|\\.)*+(?=")', "'": r"[^']*+(?=')"}
# A word of a script, or the end of a line. A quotation that is never closed goes to the end.
_SCRIPT_WORD_PATTERN = r"""
    \n | (?: "(?:[^"\\]|\\.?)*+(?:"|\Z) | '[^']*(?:'|\Z) | \\.? | [^\s"'\\]++ )++"""
# A text that is one word: nothing in it quotes, escapes or separates.
_ONE_WORD_PATTERN = r"""[^\s"'\\]+"""
# Programs whose arguments are texts, or names of programs that they do not start.
_PROGRAMS_THAT_START_NONE = frozenset({"echo", "printf", "pip", "pip3", "which"})
# How far back the beginning of a line is looked for
_MAX_LINE_CHARACTERS = 1000

Span = tuple[int, int]


class ScriptWord(NamedTuple):
    """A word between blanks; `is_mention` if it may be part of a text, and start nothing."""

    text: str
    is_mention: bool


def find_commands(text: str, start: str) -> Iterator[tuple[list[str], list[Span]]]:
    """The commands in `text` that begin where the pattern `start` matches, without comments.

    Of each its words, unquoted, and where they are; at least one.
    """
    end, quotations = 0, _Quotations(text)
    for match in _compiled_pattern(start).finditer(text):
        if match.start() < end or _is_comment(text, match.start()):
            continue
        spans = list(_word_spans(text, match.start(), quotations.end_around(match.start())))
        end = spans[-1][1] if spans else match.end()
        if spans:
            yield [_unquoted(text[a:b]) for a, b in spans], spans


def script_words(text: str) -> Iterable[ScriptWord]:
    """The words of a script, without quotes; those in a quotation that has blanks are mentions.

    So are those behind `echo` and its like, up to the end of the command.
    """
    if _compiled_pattern(_ONE_WORD_PATTERN).fullmatch(text):  # most arguments are
        return (ScriptWord(text, is_mention=False),)
    return _script_words(text)


def _script_words(text: str) -> Iterator[ScriptWord]:
    mentions, separators = False, (";", "|", "&")
    for match in _compiled_pattern(_SCRIPT_WORD_PATTERN).finditer(text.replace("\\\n", " ")):
        parts = match[0].split()
        for part in parts:
            yield ScriptWord(part.strip("\"'"), mentions or len(parts) > 1)
        name = match[0].lstrip("(;|&`$").rpartition("/")[2]
        ends = not parts or match[0].startswith(separators) or match[0].endswith(separators)
        mentions = name in _PROGRAMS_THAT_START_NONE or (mentions and not ends)


def _word_spans(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of the words of the command at `start`, up to `stop`."""
    for _ in range(_MAX_WORDS):
        match = _compiled_pattern(_WORD_PATTERN).match(text, start, stop)
        if not match or match[1].startswith("#"):
            return
        # A quotation of several lines that begins behind a letter: there, another one ends.
        if closing := _compiled_pattern(_CLOSING_QUOTE_PATTERN).match(match[1]):
            yield match.start(1), match.start(1) + closing.end()
            return
        yield match.span(1)
        start = match.end()


class _Quotations:
    """The quotations in a text that is read from its beginning to its end, in linear time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._quote = 0, ""
        self._ends: dict[str, int] = {}  # of a quotation with this quote

    def end_around(self, offset: int) -> int:
        """Return where the quotation around `offset` ends; the end of the text if there is none.

        A quotation counts if it has begun on the line of `offset`, which is never smaller than in
        the call before.
        """
        newline = self._text.rfind("\n", self._at, offset)
        if newline >= 0:
            self._at, self._quote = newline + 1, ""
        for mark in _compiled_pattern(_QUOTE_MARK_PATTERN).finditer(self._text, self._at, offset):
            self._add(mark[0])
        self._at = offset
        return self._end_after(offset) if self._quote else len(self._text)

    def _add(self, mark: str) -> None:
        is_escape = mark.startswith("\\") and self._quote != "'"
        if not is_escape and mark[-1] in ("'", '"') and self._quote in ("", mark[-1]):
            self._quote = "" if self._quote else mark[-1]

    def _end_after(self, offset: int) -> int:
        if self._ends.get(self._quote, -1) < offset:
            pattern = _compiled_pattern(_QUOTATION_PATTERN_BY_QUOTE[self._quote])
            found = pattern.match(self._text, offset)
            self._ends[self._quote] = found.end() if found else len(self._text)
        return self._ends[self._quote]


@cache
def _compiled_pattern(text: str) -> re.Pattern[str]:
    """The pattern, compiled when it is needed: few pods and files are searched for commands."""
    return re.compile(
        text, re.DOTALL | (re.VERBOSE if text in (_WORD_PATTERN, _SCRIPT_WORD_PATTERN) else 0)
    )


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)|[\"']", r"\1", word)


def _is_comment(text: str, offset: int) -> bool:
    """Return whether the line of `offset` has begun a comment before it."""
    start = max(0, offset - _MAX_LINE_CHARACTERS)
    line = text[max(start, text.rfind("\n", start, offset) + 1) : offset].lstrip()
    return line.startswith(("#", "//")) or " #" in line


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
# Before the verb: options of the tools themselves that take a word
_TOOL_OPTIONS_WITH_VALUE = frozenset(
    {"-n", "--namespace", "-a", "--address", "-H", "--host", "-c", "--context", "--config"}
    | {"-l", "--log-level", "--connection", "--url", "--root", "--storage-driver"}
)
# Options of `run` that take no word
_RUN_FLAGS = frozenset(
    {"--rm", "--detach", "--interactive", "--tty", "--init", "--privileged", "--read-only"}
    | {"--publish-all", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--quiet"}
    | {"--disable-content-trust", "--replace", "--net-host", "--rootfs", "--null-io", "--no-hosts"}
    | {"--http-proxy", "--tls-verify", "--env-host", "--rmi", "--no-pivot", "--with-ns", "--cni"}
)
_FLAG_LETTERS = frozenset("ditPqR")
_VOLUME_OPTIONS = frozenset({"-v", "--volume", "--mount"})
_GPU_OPTIONS = frozenset({"--gpus", "--runtime", "--device"}) | _VOLUME_OPTIONS
# The source and the target of a volume. A colon in a placeholder, as in `${A:-b}`, parts nothing.
_VOLUME_PATTERN = r"((?:\$\{[^{}]*+\}|\{\{[^{}]*+\}\}|[^:])*+):([^:]*+)"
# By these keys, whatever their case, `--mount` says what is mounted and where.
_SOURCE_KEYS = frozenset({"source", "src"})
_TARGET_KEYS = frozenset({"target", "destination", "dst"})
_ENVIRONMENT_OPTIONS = frozenset({"-e", "--env"})
# An option of one letter, perhaps behind flags and before its value, as in `-itv/a:/b`.
_SHORT_OPTION_PATTERN = r"-[ditPqR]*([^-=ditPqR])=?(.*)"


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
    position = first + 1
    while position < len(words) and words[position].startswith("-"):
        position += 2 if words[position] in _TOOL_OPTIONS_WITH_VALUE else 1
    if words[position : position + 1] in (["container"], ["containers"]):
        position += 1
    verb = words[position] if position < len(words) else ""
    if tool not in _CONTAINER_TOOLS or verb not in _STARTING_VERBS:
        return
    command = f"{tool} {verb}"
    if tool == _NVIDIA_DOCKER:
        yield RunOption(command, "--runtime", "nvidia", is_variable=False, word_index=first)
    position += 1
    while position < len(words) and words[position].startswith("-") and words[position] != "--":
        word = words[position]
        name, equals, value = word.partition("=")
        index = position
        position += 1
        if short := _compiled_pattern(_SHORT_OPTION_PATTERN).fullmatch(word):
            name, equals, value = f"-{short[1]}", short[2], short[2]
        if not equals and not _is_flag(word):
            value = words[position] if position < len(words) else ""
            position += 1
        if option := _gpu_or_variable_option(command, name, value, index):
            yield option


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
    parts = _compiled_pattern(_VOLUME_PATTERN).match(text)
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


def _gpu_or_variable_option(command: str, name: str, value: str, index: int) -> RunOption | None:
    if name in _ENVIRONMENT_OPTIONS:
        variable, equals, text = value.partition("=")
        return RunOption(
            command, variable, text if equals else None, is_variable=True, word_index=index
        )
    if name in _GPU_OPTIONS:
        return RunOption(command, name, value, is_variable=False, word_index=index)
    return None


def _is_flag(word: str) -> bool:
    if word.startswith("--"):
        return word in _RUN_FLAGS
    return len(word) > 1 and _FLAG_LETTERS.issuperset(word[1:])


KUBECTL_PATTERN = r"(?<![\w.-])(?:kubectl|oc)(?=[ \t])"
"""The pattern of where a command of kubectl begins, for `find_commands`."""
_NODE_RESOURCE_NAMES = frozenset({"node", "nodes", "no"})
# Options of kubectl, and of `label`, that take a word.
_LABEL_OPTIONS_WITH_VALUE = frozenset(
    {"-n", "--namespace", "--context", "--kubeconfig", "--cluster", "--user", "-s", "--server"}
    | {"--as", "--as-group", "--token", "--request-timeout", "-v"}
    | {"-l", "--selector", "--field-selector", "-f", "--filename", "-k", "--kustomize"}
    | {"-o", "--output", "--field-manager", "--resource-version", "--template"}
)


class KubectlNodeLabel(NamedTuple):
    """A label that a command sets or removes: None as `value`. `span` is that of the word."""

    name: str
    value: str | None
    overwrites: bool
    span: Span
    command_start: int


def find_node_labels(text: str) -> Iterator[KubectlNodeLabel]:
    """The labels that `kubectl label nodes` sets or removes anywhere in `text`."""
    for words, spans in find_commands(text, KUBECTL_PATTERN):
        places = list(_argument_indices(words))
        arguments = [words[place] for place in places]
        if arguments[:1] != ["label"] or not arguments[1:]:
            continue
        if arguments[1].partition("/")[0] not in _NODE_RESOURCE_NAMES:
            continue
        overwrites = any(word in ("--overwrite", "--overwrite=true") for word in words)
        for place in places[2:]:
            name, equals, value = words[place].partition("=")
            if equals:
                yield KubectlNodeLabel(name, value, overwrites, spans[place], spans[0][0])
            elif name.endswith("-"):
                yield KubectlNodeLabel(name[:-1], None, overwrites, spans[place], spans[0][0])


class KubectlVariable(NamedTuple):
    """A variable that `kubectl set env` gives containers. `span` is that of the word."""

    name: str
    value: str
    span: Span
    command_start: int


def find_kubectl_variables(text: str) -> Iterator[KubectlVariable]:
    """The variables that `kubectl set env` sets anywhere in `text`."""
    for words, spans in find_commands(text, KUBECTL_PATTERN):
        places = list(_argument_indices(words))
        if [words[place] for place in places[:2]] == ["set", "env"]:
            for place, word in enumerate(words):
                name, equals, value = word.removeprefix("--env=").partition("=")
                if equals and not name.startswith("-"):
                    yield KubectlVariable(name, value, spans[place], spans[0][0])


def _argument_indices(words: list[str]) -> Iterator[int]:
    """The indices of the words after the command that are neither options nor their values."""
    position = 1
    while position < len(words):
        if not words[position].startswith("-"):
            yield position
        elif words[position] in _LABEL_OPTIONS_WITH_VALUE:
            position += 1
        position += 1


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
