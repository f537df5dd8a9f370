"""The variables of the images that a Dockerfile can build."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rules.objects.file_settings import ContainerSetting
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile
from sources.container_files.dockerfile_instructions import Instruction, instructions
from sources.container_files.dockerfile_words import Variables, expand
from sources.container_files.settings import ContainerFileError, LocatedSetting

_USED_STAGE_PATTERN = re.compile(r"--(?:from=|mount=(?:\S*,)?from=)([^\s,]+)", re.IGNORECASE)
_STAGE_NUMBER_PATTERN = "0|[1-9][0-9]{0,8}"
_OLD_FORM_PATTERN = re.compile(r"\s*(\S+)[ \t\v\f\r]+(.*)", re.DOTALL)
# The builder knows these without a value in the file.
_PLATFORM_ARGUMENTS = tuple(
    f"{of}{part}" for of in ("BUILD", "TARGET") for part in ("PLATFORM", "OS", "ARCH", "VARIANT")
)
# Far more than any Dockerfile has, and bounds what a hostile one may cost.
_MAX_INSTRUCTIONS = 5_000
_MAX_VARIABLES = 2_000
_MAX_STAGES = 200


def dockerfile_settings(text: str, file: ObjectRef, profile: Profile) -> Iterator[LocatedSetting]:
    """The visible-devices variables of the images that a Dockerfile can build.

    These are those of the last stage, and of stages that no other stage uses. Raises
    ContainerFileError for a file that is too large.
    """
    stages = stages_of(text)
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


class EnvValue(NamedTuple):
    """A variable's value, None if it cannot be known, and where it is set."""

    value: str | None
    start: int
    end: int
    statement_start: int


class BuildStage:
    """One stage of a build: what it has inherited, and what its instructions add."""

    def __init__(self, name: str, base: BuildStage | None = None) -> None:
        self.name = name
        self.environment: dict[str, EnvValue] = dict(base.environment) if base else {}
        self.variables: Variables = Variables(base.variables.values if base else {})
        """Those of the environment, and arguments."""
        self.set_environment(self.environment)
        self.triggers: list[Instruction] = []
        """Those that run at the begin of a stage that has this one as its base."""
        self.is_used = False

    def set_environment(self, values: Mapping[str, EnvValue]) -> None:
        """Set variables of the environment."""
        self.environment.update(values)
        self.variables.values.update((name, each.value) for name, each in values.items())


def stages_of(text: str) -> list[BuildStage]:
    """The stages of a Dockerfile. Raises ContainerFileError for a file that is too large."""
    build = _DockerfileBuild()
    for instruction in instructions(text):
        build.add(instruction)
    return build.stages


class _DockerfileBuild:
    """The stages of a Dockerfile."""

    def __init__(self) -> None:
        self.stages: list[BuildStage] = []
        self._start = BuildStage("")  # has the arguments above the first stage
        self._start.variables.values.update(dict.fromkeys(_PLATFORM_ARGUMENTS))
        self._by_name: dict[str, BuildStage] = {}
        self._variables = 0
        self._instructions = 0

    def add(self, instruction: Instruction) -> None:
        """Read the next instruction, or one that it triggers. Raises ContainerFileError."""
        self._instructions += 1
        if self._instructions > _MAX_INSTRUCTIONS:
            why = f"it has more than {_MAX_INSTRUCTIONS} instructions"
            raise ContainerFileError(why, instruction.start)
        stage = self.stages[-1] if self.stages else self._start
        if instruction.keyword == "FROM":
            self._begin_stage(instruction)
        elif instruction.keyword == "ARG":
            self._add_arguments(stage, instruction)
        elif instruction.keyword == "ENV" and self.stages:
            # Within one instruction they do not see each other.
            stage.set_environment(dict(self._variables_of(stage, instruction)))
        elif instruction.keyword == "ONBUILD" and self.stages:
            stage.triggers.append(instruction.triggered())
        elif instruction.keyword in ("COPY", "RUN"):
            for flag in instruction.flags:
                if match := _USED_STAGE_PATTERN.match(flag):
                    self._use(match[1])

    def _use(self, stage: str) -> None:
        """Note that another stage uses the stage with this name or number."""
        if used := self._by_name.get(stage.lower()):
            used.is_used = True
        elif re.fullmatch(_STAGE_NUMBER_PATTERN, stage) and int(stage) < len(self.stages):
            self.stages[int(stage)].is_used = True

    def _begin_stage(self, instruction: Instruction) -> None:
        if len(self.stages) >= _MAX_STAGES:
            raise ContainerFileError(f"it has more than {_MAX_STAGES} stages", instruction.start)
        words = [word.text for word in instruction.arguments]
        image = expand(words[0], self._start.variables, instruction.escape) if words else ""
        base = self._by_name.get((image or "").lower())
        if base:
            base.is_used = True
        name = words[2] if [word.lower() for word in words[1:2]] == ["as"] and words[2:] else ""
        stage = BuildStage(name, base)
        if name:
            self._by_name[name.lower()] = stage
        self.stages.append(stage)
        for trigger in base.triggers if base else ():
            self.add(trigger)

    def _add_arguments(self, stage: BuildStage, instruction: Instruction) -> None:
        for word in instruction.arguments:
            self._count_variable(instruction)
            name, equals, default = word.text.partition("=")
            outer, own = self._start.variables.values, stage.variables.values
            if equals:
                own[name] = expand(default, stage.variables, instruction.escape)
            elif name in outer:
                own[name] = outer[name]
            else:
                stage.variables.undecided.add(name)

    def _variables_of(
        self, stage: BuildStage, instruction: Instruction
    ) -> Iterator[tuple[str, EnvValue]]:
        for key, value, start, end in _pairs(instruction):
            self._count_variable(instruction)
            name = expand(key, stage.variables, instruction.escape)
            if name is not None:
                yield (
                    name,
                    EnvValue(
                        expand(value, stage.variables, instruction.escape),
                        instruction.file_offset(start),
                        instruction.file_offset(end - 1) + 1,
                        instruction.start,
                    ),
                )

    def _count_variable(self, instruction: Instruction) -> None:
        self._variables += 1
        if self._variables > _MAX_VARIABLES:
            raise ContainerFileError(
                f"it has more than {_MAX_VARIABLES} variables", instruction.start
            )


def _pairs(instruction: Instruction) -> Iterator[tuple[str, str, int, int]]:
    """The names and values that ENV sets, as they are written, and their places in its text."""
    words = instruction.arguments
    if words and "=" not in words[0].text:  # `ENV name value`
        text = instruction.text.rstrip()
        if match := _OLD_FORM_PATTERN.fullmatch(text, words[0].start):
            yield match[1], match[2], match.start(1), match.end()
        return
    for word in words:
        name, equals, value = word.text.partition("=")
        if equals:
            yield name, value, word.start, word.end
