"""Read which variables a Dockerfile gives the containers of its images by default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lint.container_files.instructions import Instruction, instructions
from lint.container_files.placed import PlacedSetting, UnreadableError
from rules.objects.file_settings import ContainerSetting
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile

_PAIR = re.compile(r"([\w.-]+)=((?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\.|[^\s\"'\\])*)")
_LEGACY = re.compile(r"\s*([\w.-]+)\s+(.*)")
_ARG = re.compile(r"([\w.-]+)(?:=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*))?")
_REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})")
_USED = re.compile(r"--(?:from=|mount=\S{0,300}?\bfrom=)([^\s,]+)")
# Far more than any Dockerfile has, and bounds what a hostile one may cost.
_MAX_INSTRUCTIONS = 5_000
_MAX_VARIABLES = 2_000
_MAX_STAGES = 200
_MAX_REFERENCES_IN = 1_000  # characters of a value in which references are replaced
_MAX_VALUE = 4_097


class _Value(NamedTuple):
    """A variable's value, None if nobody can know it, and where it is set."""

    value: str | None
    start: int
    end: int
    statement: int


class _Stage:
    """One stage of a build: what it has inherited, and what its instructions add."""

    def __init__(self, name: str, base: _Stage | None = None) -> None:
        self.name = name
        self.environment: dict[str, _Value] = dict(base.environment) if base else {}
        self.arguments: dict[str, str | None] = {}
        self.is_used = False

    def expand(self, text: str) -> str | None:
        """`text` with its references replaced; None if it depends on what nobody can know."""
        text = _unquoted(text)
        if len(text) > _MAX_REFERENCES_IN:
            return text[:_MAX_VALUE]
        unknown = []

        def replace(match: re.Match[str]) -> str:
            value = self._value(match[1] or match[2])
            operator, other = match[3] or "", match[4] or ""
            if operator:
                return (value or other) if operator.endswith("-") else other * bool(value)
            if value is None:
                unknown.append(match)
            return value or ""

        expanded = _REFERENCE.sub(replace, text)[:_MAX_VALUE]
        return None if unknown else expanded

    def _value(self, name: str) -> str | None:
        known = self.environment.get(name)
        return known.value if known else self.arguments.get(name, "")


class _Build:
    """The stages of a Dockerfile."""

    def __init__(self) -> None:
        self.stages: list[_Stage] = []
        self._start = _Stage("")  # has the arguments above the first stage
        self._by_name: dict[str, _Stage] = {}
        self._variables = 0

    def add(self, instruction: Instruction) -> None:
        """Read the next instruction. Raises UnreadableError."""
        stage = self.stages[-1] if self.stages else self._start
        if instruction.word == "FROM":
            self._begin_stage(instruction)
        elif instruction.word == "ARG":
            for match in _ARG.finditer(instruction.text, len("ARG")):
                self._count(instruction)
                default = None if match[2] is None else stage.expand(match[2])
                outer = None if stage is self._start else self._start.arguments.get(match[1])
                stage.arguments[match[1]] = outer if default is None else default
        elif instruction.word == "ENV" and self.stages:
            values = dict(self._variables_of(stage, instruction))
            stage.environment.update(values)  # within one instruction they do not see each other
        elif instruction.word in ("COPY", "RUN", "ADD"):
            for match in _USED.finditer(instruction.text):
                if used := self._by_name.get(match[1].lower()):
                    used.is_used = True

    def _begin_stage(self, instruction: Instruction) -> None:
        if len(self.stages) >= _MAX_STAGES:
            raise UnreadableError(f"it has more than {_MAX_STAGES} stages", instruction.start)
        words = [word for word in instruction.text.split()[1:] if not word.startswith("--")]
        image = self._start.expand(words[0]) if words else ""
        base = self._by_name.get((image or "").lower())
        if base:
            base.is_used = True
        name = words[2] if [word.lower() for word in words[1:2]] == ["as"] and words[2:] else ""
        stage = _Stage(name, base)
        self._by_name[str(len(self.stages))] = stage
        if name:
            self._by_name[name.lower()] = stage
        self.stages.append(stage)

    def _variables_of(
        self, stage: _Stage, instruction: Instruction
    ) -> Iterator[tuple[str, _Value]]:
        first = next(iter(instruction.text.split(maxsplit=2)[1:2]), "")
        pattern = _PAIR if "=" in first else _LEGACY
        for match in pattern.finditer(instruction.text, len("ENV")):
            self._count(instruction)
            start, end = instruction.place(match.start(1)), instruction.place(match.end() - 1) + 1
            yield match[1], _Value(stage.expand(match[2]), start, end, instruction.start)

    def _count(self, instruction: Instruction) -> None:
        self._variables += 1
        if self._variables > _MAX_VARIABLES:
            raise UnreadableError(f"it has more than {_MAX_VARIABLES} variables", instruction.start)


def dockerfile_settings(text: str, file: ObjectRef, profile: Profile) -> Iterator[PlacedSetting]:
    """The visible-devices variables of the images that a Dockerfile can build.

    These are those of the last stage, and of stages that no other stage uses. Raises
    UnreadableError for a file that is too large.
    """
    build = _Build()
    for number, instruction in enumerate(instructions(text)):
        if number >= _MAX_INSTRUCTIONS:
            why = f"it has more than {_MAX_INSTRUCTIONS} instructions"
            raise UnreadableError(why, instruction.start)
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
                yield PlacedSetting(setting, value.start, value.end, value.statement)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)|[\"']", r"\1", text)
