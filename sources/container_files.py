"""Files that are no manifests: which are linted, and what they give containers."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kubeyaml import Document, YamlError, read, split
from rules.base.json_values import Path, as_object, as_objects, as_text
from rules.gpu.images import is_cuda_image
from rules.gpu.scripts import (
    RunOption,
    find_kubectl_variables,
    find_node_labels,
    find_run_options,
    gives_gpu,
    is_gpu_device,
    is_gpu_volume,
    run_options,
)
from rules.gpu.volumes import is_device_request
from rules.objects.file_settings import ContainerSetting, LabelCommand
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile
from sources.paths import Exclusion, FilePlaces, is_tool_folder, walk
from sources.sources import TEMPLATE_ENDINGS, InputFile, UsageError, has_placeholder

DOCKERFILE, COMPOSE, SHELL, MARKDOWN = CONTAINER_FILE_KINDS = (
    "dockerfile",
    "compose",
    "shell",
    "markdown",
)
_TEMPLATE_PATTERN = rf"(\.({'|'.join(TEMPLATE_ENDINGS)}))?"
_FILE_NAME_PATTERN_BY_KIND = {
    DOCKERFILE: re.compile(r"(.+[._-])?(dockerfile|containerfile)([._-](?!dockerignore$).+)?"),
    COMPOSE: re.compile(rf"(.+[.-])?compose([.-].+)?\.ya?ml{_TEMPLATE_PATTERN}"),
    SHELL: re.compile(
        r"(.+\.(sh|bash|zsh|ksh|mk|service)|(gnu)?makefile|justfile|jenkinsfile|taskfile\.ya?ml"
        r"|(azure|bitbucket)-pipelines\.ya?ml|cloudbuild\.ya?ml|\.(gitlab-ci|travis|drone)\.ya?ml)"
        + _TEMPLATE_PATTERN
    ),
    MARKDOWN: re.compile(r".+\.(md|mdx|markdown)"),
}
# Of a file that others extend, the services have no image.
_SERVICES_PATTERN = r"(?m)^services:[ \t]*(?:#.*)?$"
_MAX_COMPOSE_CHARACTERS = 1 << 18
_CI_FOLDERS = (".github/workflows", ".github/actions", ".circleci", ".gitlab", ".buildkite")


def container_file_kind(name: str) -> str:
    """The kind of the file called `name`, empty for every other file."""
    base = os.path.basename(name).lower()
    kinds = (
        kind for kind, pattern in _FILE_NAME_PATTERN_BY_KIND.items() if pattern.fullmatch(base)
    )
    return next(kinds, SHELL if is_ci_file(name) else "")


def is_ci_file(name: str) -> bool:
    """Return whether the file is YAML that a CI system reads."""
    folder = os.path.dirname(os.path.abspath(name)).replace(os.sep, "/") + "/"
    base = os.path.basename(name).lower()
    is_in_folder = any(f"/{known}/" in folder for known in _CI_FOLDERS)
    is_known = is_in_folder or _FILE_NAME_PATTERN_BY_KIND[SHELL].fullmatch(base) is not None
    return is_known and base.endswith((".yaml", ".yml"))


class ContainerFiles:
    """The files of some kinds at the paths of a run, which are no manifests."""

    def __init__(self, kinds: str) -> None:
        """`kinds` are words with commas. Raises UsageError for one that is unknown."""
        self._kinds = set(kinds.split(","))
        if unknown := sorted(self._kinds.difference(CONTAINER_FILE_KINDS)):
            raise UsageError(
                f"--also {unknown[0]}: the kinds are {', '.join(CONTAINER_FILE_KINDS)}"
            )

    def __contains__(self, name: str) -> bool:
        """Return whether the file called `name` is of one of the kinds, by its name."""
        return container_file_kind(name) in self._kinds

    def find_files(
        self,
        paths: Iterable[str],
        exclude: Exclusion,
        is_wanted: Callable[[str], bool] | None = None,
    ) -> Iterator[InputFile]:
        """The files at `paths`, each once; none of the folders in which tools keep theirs.

        A compose file may have any name, as in `docker compose -f plex.yml`. What only looks like
        one may have manifests, too.
        """
        places = FilePlaces()
        for path in paths:
            for name in _files(path, exclude) if os.path.isdir(path) else [path]:
                if is_wanted and not is_wanted(name):
                    continue
                if name not in self and not self._is_compose_of_other_name(name):
                    continue
                if not exclude.excludes(name) and places.add(name):
                    yield InputFile(name, path)

    def _is_compose_of_other_name(self, name: str) -> bool:
        """Return whether a file of no kind by its name has services as compose has them."""
        if COMPOSE not in self._kinds or container_file_kind(name):
            return False
        is_yaml = name.lower().endswith((".yaml", ".yml"))
        # A named pipe would hold the run up.
        return is_yaml and os.path.isfile(name) and _has_services(name)


def _has_services(name: str) -> bool:
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_COMPOSE_CHARACTERS)
    except OSError:
        return False
    return re.search(_SERVICES_PATTERN, text) is not None


def _files(root: str, exclude: Exclusion) -> Iterator[str]:
    for here, folders, files in walk(root, exclude):
        folders[:] = (name for name in folders if not is_tool_folder(name))
        for name in files:
            yield os.path.normpath(os.path.join(here, name))


class LocatedSetting(NamedTuple):
    """A setting, and the offsets of its text.

    `statement_start` is where the instruction or the command begins that it is a part of. In YAML,
    `document` and `path` say where it is instead.
    """

    setting: ContainerSetting | LabelCommand
    start: int = 0
    end: int = 0
    statement_start: int = 0
    document: Document | None = None
    path: Path = ()


class ContainerFileError(Exception):
    """A file that cannot be read; the message is the reason, `offset` where it is."""

    def __init__(self, reason: str, offset: int = 0) -> None:
        super().__init__(reason)
        self.offset = offset


_TEMPLATE_REASON = "a template that is no YAML: lint what it renders to"
_DEVICES_PATH = ("deploy", "resources", "reservations")


def compose_settings(text: str, file: ObjectRef, profile: Profile) -> Iterator[LocatedSetting]:
    """Yield the settings that give services GPUs. Raises ContainerFileError for what is no YAML."""
    try:
        for chunk in split(text):
            document = read(chunk)
            services = as_object(document.value).get("services") if document else None
            for name, raw in as_object(services).items():
                holder = f'service "{name}"'
                for path, key, value in _settings_of_service(as_object(raw)):
                    known = profile.visible_variable(key)
                    if known or path[0] != "environment":
                        setting = ContainerSetting(file, holder, key, value, known)
                        place: Path = ("services", name, *path)
                        yield LocatedSetting(setting, document=document, path=place)
    except YamlError as error:
        why = _TEMPLATE_REASON if has_placeholder(text) else error.message
        raise ContainerFileError(why, error.offset) from error


def _settings_of_service(service: Mapping[str, Any]) -> Iterator[tuple[Path, str, str | None]]:
    """The path, the name and the value of each setting that may give a GPU."""
    if gpus := service.get("gpus"):
        yield ("gpus",), "gpus", as_text(gpus)
    if as_text(service.get("runtime")).startswith("nvidia"):
        yield ("runtime",), "runtime", as_text(service.get("runtime"))
    if service.get("privileged") is True and is_cuda_image(as_text(service.get("image"))):
        yield ("privileged",), "privileged", ""
    yield from _devices_and_volumes(service)
    yield from _environment_entries(service.get("environment"))


def _devices_and_volumes(service: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    for index, entry in _entries(service.get("devices")):
        source = as_text(entry) or as_text(as_object(entry).get("source"))
        if is_gpu_device(source):
            yield ("devices", index), "devices", source
    for index, entry in _entries(service.get("volumes")):
        written = as_text(entry)
        source, target = (as_text(as_object(entry).get(key)) for key in ("source", "target"))
        if is_gpu_volume(written) or is_device_request(source, target):
            yield ("volumes", index), "volumes", written or f"{source}:{target}"
    reserved: Any = service
    for key in _DEVICES_PATH:
        reserved = as_object(as_object(reserved).get(key))
    for index, entry in as_objects(reserved.get("devices")):
        if _is_gpu_device(entry):
            yield (*_DEVICES_PATH, "devices", index), "deploy.resources.reservations.devices", ""


def _entries(raw: Any) -> Iterator[tuple[int, Any]]:
    return enumerate(raw if isinstance(raw, list) else ())


def _is_gpu_device(device: Mapping[str, Any]) -> bool:
    capabilities = device.get("capabilities")
    words = capabilities if isinstance(capabilities, list) else []
    driver = as_text(device.get("driver"))
    return "gpu" in words or "nvidia" in driver or any("gpu" in as_text(w) for w in words)


def _environment_entries(raw: Any) -> Iterator[tuple[Path, str, str | None]]:
    if isinstance(raw, list):
        for index, entry in enumerate(raw):
            name, equals, value = as_text(entry).partition("=")
            yield ("environment", index), name, value if equals else None
    for name, value in as_object(raw).items():
        yield ("environment", name), name, None if value is None else str(value)


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
        if setting := _setting(found.option, file, profile):
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
            if job := _setting(option._replace(tool="a job"), file, profile):
                yield LocatedSetting(job, match.start(1), match.end(1), match.start(1))


def _setting(option: RunOption, file: ObjectRef, profile: Profile) -> ContainerSetting | None:
    """The setting that `option` is, None if it gives no GPU."""
    known = profile.visible_variable(option.name) if option.is_variable else None
    if not gives_gpu(option, known):
        return None
    holder = option.tool if option.tool == "a job" else f"`{option.tool}`"
    return ContainerSetting(file, holder, option.name, option.value, known)


# Split a Dockerfile into its instructions.
#
# No package that is still maintained reads Dockerfiles without a program of another language, and
# little is needed: https://docs.docker.com/reference/dockerfile/

_ESCAPE_DIRECTIVE_PATTERN = re.compile(r"#\s*escape\s*=\s*([\\`])", re.IGNORECASE)
_HEREDOC_PATTERN = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_INSTRUCTIONS_WITH_HEREDOC = ("RUN", "COPY", "ADD")


class Instruction(NamedTuple):
    """An instruction; `offsets` are where its lines begin in `text` and in the file."""

    keyword: str
    text: str
    offsets: list[tuple[int, int]]

    @property
    def start(self) -> int:
        """The offset in the file at which the instruction begins."""
        return self.offsets[0][1]

    def file_offset(self, index: int) -> int:
        """The offset in the file of the character at `index` of `text`."""
        at, start = self.offsets[bisect_right(self.offsets, index, key=lambda pair: pair[0]) - 1]
        return start + index - at


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, without comments, and without here-documents."""
    first = _ESCAPE_DIRECTIVE_PATTERN.match(text)
    escape = first[1] if first else "\\"
    parts: list[str] = []
    offsets: list[tuple[int, int]] = []
    length = offset = 0
    waiting: list[str] = []  # the words that end here-documents
    for line in text.splitlines(keepends=True):
        begin, offset = offset, offset + len(line)
        content = line.strip()
        if waiting:
            if content == waiting[0]:
                waiting.pop(0)
            continue
        if content.startswith("#") or not content:
            continue
        begin += len(line) - len(line.lstrip())
        is_continued = content.endswith(escape)
        content = f"{content[:-1]} " if is_continued else content
        offsets.append((length, begin))
        parts.append(content)
        length += len(content)
        if not is_continued:
            instruction = _instruction(parts, offsets)
            yield instruction
            if instruction.keyword in _INSTRUCTIONS_WITH_HEREDOC:
                waiting = [match[2] for match in _HEREDOC_PATTERN.finditer(instruction.text)]
            parts, offsets, length = [], [], 0
    if parts:
        yield _instruction(parts, offsets)


def _instruction(parts: list[str], offsets: list[tuple[int, int]]) -> Instruction:
    text = "".join(parts)
    return Instruction(next(iter(text.split(maxsplit=1)), "").upper(), text, offsets)


_ENV_PAIR_PATTERN = re.compile(r"([\w.-]+)=((?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\.|[^\s\"'\\])*)")
_LEGACY_ENV_PATTERN = re.compile(r"\s*([\w.-]+)\s+(.*)")
_ARG_PATTERN = re.compile(r"([\w.-]+)(?:=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*))?")
_REFERENCE_PATTERN = re.compile(r"\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})")
_USED_STAGE_PATTERN = re.compile(r"--(?:from=|mount=\S{0,300}?\bfrom=)([^\s,]+)")
# Far more than any Dockerfile has, and bounds what a hostile one may cost.
_MAX_INSTRUCTIONS = 5_000
_MAX_VARIABLES = 2_000
_MAX_STAGES = 200
_MAX_EXPANDED_CHARACTERS = 1_000  # characters of a value in which references are replaced
_MAX_VALUE_CHARACTERS = 4_097


class _EnvValue(NamedTuple):
    """A variable's value, None if it cannot be known, and where it is set."""

    value: str | None
    start: int
    end: int
    statement_start: int


class _BuildStage:
    """One stage of a build: what it has inherited, and what its instructions add."""

    def __init__(self, name: str, base: _BuildStage | None = None) -> None:
        self.name = name
        self.environment: dict[str, _EnvValue] = dict(base.environment) if base else {}
        self.arguments: dict[str, str | None] = {}
        self.is_used = False

    def expand(self, text: str) -> str | None:
        """`text` with its references replaced; None if it depends on what cannot be known."""
        text = _unquoted(text)
        if len(text) > _MAX_EXPANDED_CHARACTERS:
            return text[:_MAX_VALUE_CHARACTERS]
        unknown = []

        def replace(match: re.Match[str]) -> str:
            value = self._variable_value(match[1] or match[2])
            operator, other = match[3] or "", match[4] or ""
            if operator:
                return (value or other) if operator.endswith("-") else other * bool(value)
            if value is None:
                unknown.append(match)
            return value or ""

        expanded = _REFERENCE_PATTERN.sub(replace, text)[:_MAX_VALUE_CHARACTERS]
        return None if unknown else expanded

    def _variable_value(self, name: str) -> str | None:
        known = self.environment.get(name)
        return known.value if known else self.arguments.get(name, "")


class _DockerfileBuild:
    """The stages of a Dockerfile."""

    def __init__(self) -> None:
        self.stages: list[_BuildStage] = []
        self._start = _BuildStage("")  # has the arguments above the first stage
        self._by_name: dict[str, _BuildStage] = {}
        self._variables = 0

    def add(self, instruction: Instruction) -> None:
        """Read the next instruction. Raises ContainerFileError."""
        stage = self.stages[-1] if self.stages else self._start
        if instruction.keyword == "FROM":
            self._begin_stage(instruction)
        elif instruction.keyword == "ARG":
            for match in _ARG_PATTERN.finditer(instruction.text, len("ARG")):
                self._count_variable(instruction)
                default = None if match[2] is None else stage.expand(match[2])
                outer = None if stage is self._start else self._start.arguments.get(match[1])
                stage.arguments[match[1]] = outer if default is None else default
        elif instruction.keyword == "ENV" and self.stages:
            values = dict(self._variables_of(stage, instruction))
            stage.environment.update(values)  # within one instruction they do not see each other
        elif instruction.keyword in ("COPY", "RUN", "ADD"):
            for match in _USED_STAGE_PATTERN.finditer(instruction.text):
                if used := self._by_name.get(match[1].lower()):
                    used.is_used = True

    def _begin_stage(self, instruction: Instruction) -> None:
        if len(self.stages) >= _MAX_STAGES:
            raise ContainerFileError(f"it has more than {_MAX_STAGES} stages", instruction.start)
        words = [word for word in instruction.text.split()[1:] if not word.startswith("--")]
        image = self._start.expand(words[0]) if words else ""
        base = self._by_name.get((image or "").lower())
        if base:
            base.is_used = True
        name = words[2] if [word.lower() for word in words[1:2]] == ["as"] and words[2:] else ""
        stage = _BuildStage(name, base)
        self._by_name[str(len(self.stages))] = stage
        if name:
            self._by_name[name.lower()] = stage
        self.stages.append(stage)

    def _variables_of(
        self, stage: _BuildStage, instruction: Instruction
    ) -> Iterator[tuple[str, _EnvValue]]:
        first = next(iter(instruction.text.split(maxsplit=2)[1:2]), "")
        pattern = _ENV_PAIR_PATTERN if "=" in first else _LEGACY_ENV_PATTERN
        for match in pattern.finditer(instruction.text, len("ENV")):
            self._count_variable(instruction)
            start, end = (
                instruction.file_offset(match.start(1)),
                instruction.file_offset(match.end() - 1) + 1,
            )
            yield match[1], _EnvValue(stage.expand(match[2]), start, end, instruction.start)

    def _count_variable(self, instruction: Instruction) -> None:
        self._variables += 1
        if self._variables > _MAX_VARIABLES:
            raise ContainerFileError(
                f"it has more than {_MAX_VARIABLES} variables", instruction.start
            )


def dockerfile_settings(text: str, file: ObjectRef, profile: Profile) -> Iterator[LocatedSetting]:
    """The visible-devices variables of the images that a Dockerfile can build.

    These are those of the last stage, and of stages that no other stage uses. Raises
    ContainerFileError for a file that is too large.
    """
    build = _DockerfileBuild()
    for number, instruction in enumerate(instructions(text)):
        if number >= _MAX_INSTRUCTIONS:
            why = f"it has more than {_MAX_INSTRUCTIONS} instructions"
            raise ContainerFileError(why, instruction.start)
        build.add(instruction)
    stages = build.stages
    seen = set()
    for number, stage in enumerate(stages, 1):
        if stage.is_used and number < len(stages):
            continue
        named = f'stage "{stage.name}"' if stage.name else f"stage {number}"
        holder = named if len(stages) > 1 else "the image"
        for name, value in stage.environment.items():
            known = profile.visible_variable(name)
            if known and value.start not in seen:
                seen.add(value.start)
                setting = ContainerSetting(file, holder, name, value.value, known)
                yield LocatedSetting(setting, value.start, value.end, value.statement_start)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)|[\"']", r"\1", text)
