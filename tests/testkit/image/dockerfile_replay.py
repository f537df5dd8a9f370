"""Build the Dockerfile in a folder, without a container engine.

`stages` parses the file. `Replay` runs the stages: each has a root folder of its own and, as its
base image, a new virtual environment of the Python that runs the tests.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile; continued lines are joined."""

    name: str
    value: str

    @property
    def words(self) -> list[str]:
        """The words of the value, in the shell form or the exec form."""
        if self.value.startswith("["):
            words: list[str] = json.loads(self.value)
            return words
        return shlex.split(self.value)

    @property
    def pairs(self) -> dict[str, str]:
        """The KEY=VALUE words of ENV, LABEL or ARG."""
        return dict(word.split("=", 1) for word in self.words if "=" in word)


@dataclass
class Stage:
    """The instructions from one FROM to the next."""

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def find_all(self, name: str) -> list[Instruction]:
        """The instructions of the stage called `name`."""
        return [one for one in self.instructions if one.name == name]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that ENV instructions set."""
        return {key: value for one in self.find_all("ENV") for key, value in one.pairs.items()}


def stages(text: str) -> list[Stage]:
    """The stages of a Dockerfile."""
    found: list[Stage] = []
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            base, *alias = instruction.words
            found.append(Stage(base, alias[1] if alias else ""))
        else:
            found[-1].instructions.append(instruction)
    return found


def _instructions(text: str) -> Iterator[Instruction]:
    lines = (line for line in text.splitlines() if not re.match(r"\s*(#|$)", line))
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        name, _, value = line.partition(" ")
        yield Instruction(name.upper(), value.strip())


class BuildContext:
    """The build context `root`, filtered by its .dockerignore."""

    def __init__(self, root: Path) -> None:
        self._root = root
        lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
        patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        self._rules = [(p.startswith("!"), _expression(p.lstrip("!"))) for p in patterns]

    def allows(self, path: str) -> bool:
        """Return whether the build sees the file `path`; the last pattern that matches decides."""
        decisions = [keep for keep, expression in self._rules if expression.match(path)]
        return not decisions or decisions[-1]

    def files(self, below: str = ".") -> list[str]:
        """The files that the build sees: below the folder, or the file itself."""
        start = self._root / below
        if start.is_file():
            return [below] if self.allows(below) else []
        names = (
            os.path.relpath(os.path.join(folder, name), self._root)
            for folder, _, files in os.walk(start)
            for name in files
        )
        return sorted(name for name in names if self.allows(name))

    def copy(self, source: str, target: Path) -> None:
        """COPY: a folder's files into `target`, or a file to it."""
        names = self.files(source)
        assert names, f"COPY {source}: the build context has no such file"
        for name in names:
            copy = target / os.path.relpath(name, source) if name != source else target
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self._root / name, copy)


def _expression(pattern: str) -> re.Pattern[str]:
    """A pattern of .dockerignore, which matches a path and everything below it."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.strip("/"))
    return re.compile("".join(_WILDCARDS.get(p, re.escape(p)) for p in parts) + r"(?:/.*)?\Z")


class Replay:
    """The stages of a Dockerfile, run below `folder`; `root(name)` is the result of one."""

    def __init__(self, dockerfile: Path, folder: Path) -> None:
        self._folder = folder
        self._context = BuildContext(dockerfile.parent)
        self.stages = stages(dockerfile.read_text(encoding="utf-8"))
        self._by_name = {stage.name: stage for stage in self.stages}
        self._python = folder / "python"
        venv.create(self._python, with_pip=True)
        for stage in self.stages:
            self._run_stage(stage)

    def root(self, name: str) -> Path:
        """The root folder of the stage called `name`; the last one has no name."""
        return self._folder / (name or "final")

    def _run_stage(self, stage: Stage) -> None:
        root = self.root(stage.name)
        base = self._by_name.get(stage.base)
        root.mkdir()
        work = root
        environment: dict[str, str] = {}
        for instruction in [*(base.instructions if base else ()), *stage.instructions]:
            if instruction.name == "WORKDIR":
                work = self._resolve(root, work, instruction.value)
                work.mkdir(parents=True, exist_ok=True)
            elif instruction.name == "ENV":
                environment |= instruction.pairs
            elif instruction.name == "COPY":
                self._copy(instruction.words, root, work)
            elif instruction.name == "RUN":
                self._run(instruction.value, root, work, environment)

    def _copy(self, words: list[str], root: Path, work: Path) -> None:
        origin = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else ""
        source, target = words
        destination = self._resolve(root, work, target)
        if origin:
            tree = self.root(origin) / source.lstrip("/")
            shutil.copytree(tree, destination, dirs_exist_ok=True, symlinks=True)
        else:
            is_file = target == "." and source != "."
            copy = destination / Path(source).name if is_file else destination
            self._context.copy(source, copy)

    @staticmethod
    def _resolve(root: Path, work: Path, path: str) -> Path:
        return root / path.lstrip("/") if path.startswith("/") else work / path

    def _run(self, value: str, root: Path, work: Path, environment: dict[str, str]) -> None:
        """RUN, without mounts; its paths are relative, so it writes only below `root`."""
        base = root / "python"
        if not base.exists():
            shutil.copytree(self._python, base, symlinks=True)
        command = re.sub(r"--mount=\S+\s*", "", value)
        # pip's own cache replaces the cache mount, so that packages are downloaded once.
        path = f"{base / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-ec", command],
            cwd=work,
            env={**os.environ, **environment, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"RUN {command}\n{done.stdout}{done.stderr}"
