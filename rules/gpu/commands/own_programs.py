"""Containers that run the program of their image, and no code that their author chose."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects, as_text
from rules.base.text_matching import is_found, matches_any
from rules.gpu.volumes import clean_path
from rules.objects.container import Container
from rules.profile.platforms.makers import (
    AGENT_PROGRAM_PATTERN,
    AGENT_SCRIPT_PATTERN,
    COMMAND_BEGIN_PATTERN,
    IDLE_PATTERN,
    LOOKING_PATTERN,
    PROGRAM_AT_END_PATTERN,
    SHELL_PATTERN,
    WAITING_PATTERN,
)

# From where code is run: the folders of programs and libraries, what the loader reads, and what
# these are in.
CODE_PATTERN = (
    r"^/(?:$|(?:bin|sbin|lib[^/]*|usr|opt|proc)(?:/|$)|etc(?:/ld\.so|/alternatives(?:/|$)|$))"
)
PARENT = ".."
# By these the author of a container chooses code: ld.so(8), bash(1), iconv_open(3), python(1),
# perlrun(1), config(5ssl), libraries that CUDA loads for profilers, DCGM's program for diagnoses.
CODE_VARIABLES = (
    *("LD_*", "GCONV_PATH", "PATH", "ENV", "BASH*", "SHELLOPTS", "PS4", "PYTHON*", "PERL*"),
    *("OPENSSL_*", "*INJECTION*", "*_BIN_PATH"),
)
# The same where makers' manifests set variables: Habana's has LD_LIBRARY_PATH.
CODE_VARIABLES_OF_AGENTS = ("LD_PRELOAD", "LD_AUDIT", "BASH*", "ENV", "PYTHONPATH", "PYTHONHOME")
# Where programs without a folder are. A folder of these may be a link to another.
PROGRAM_FOLDERS = (
    *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"),
    *("/sbin", "/bin"),
)
SEARCH_PATH = "PATH"
SEARCH_PATH_PATTERN = "(/[^:$]*)(:/[^:$]*)*"
# In these no image has the folder in which it works.
DATA_PATTERN = "^/(dev|etc|proc|run|sys|var)/"
# What has these in its path is no file of the image, or may be none.
FOREIGN_PARTS = frozenset({PARENT, "proc"})
# Makers' manifests have no longer command. Longer ones cost time.
MAX_COMMAND_CHARACTERS = 1000
# The same of the folder in which a container works.
MAX_FOLDER_CHARACTERS = 255
# In which fields of a container, beside its own, a command may be.
HOOKS_AND_PROBES = (
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
    ("livenessProbe",),
    ("readinessProbe",),
    ("startupProbe",),
)


def runs_own_program(container: Container, programs: Collection[str]) -> bool:
    """Return whether `container` runs only the program of its image or one of `programs`.

    Its author may choose neither by a variable nor by a volume what is loaded or run, and no hook
    or probe may run a command.
    """
    raw = container.raw
    return (
        all(word in programs or word.startswith("-") for word in _words(raw)[:1])
        and not raw.get("envFrom")
        and not any(matches_any(CODE_VARIABLES, name) for name in container.env)
        and not any(_is_code(as_text(m.get("mountPath"))) for _, m in container.mounts)
        and not any(_has_command(raw, path) for path in HOOKS_AND_PROBES)
    )


def runs_program_of_agent(container: Container) -> bool:
    """Return whether `container`, with another maker's agent, runs what such agents run.

    Makers' manifests name many programs, so the names decide. A program in a volume is the
    author's, whatever its name. Libraries are not judged: makers mount those of the node.
    """
    raw = container.raw
    ends = container.role == "init" and not raw.get("restartPolicy")
    hooks = (_command(raw, path) for path in HOOKS_AND_PROBES)
    env = [entry for _, entry in as_objects(raw.get("env"))]
    search = [as_text(e.get("value")) for e in env if e.get("name") == SEARCH_PATH]
    paths = [as_text(mount.get("mountPath")) for _, mount in container.mounts]
    working_folder = as_text(raw.get("workingDir"))
    if (
        raw.get("envFrom")
        or any(matches_any(CODE_VARIABLES_OF_AGENTS, as_text(e.get("name"))) for e in env)
        or len(search) > 1
        or not all(_fits(SEARCH_PATH_PATTERN, text) for text in search)
        or any(PARENT in path for path in paths)
        or len(working_folder) > MAX_FOLDER_CHARACTERS
    ):
        return False
    programs = _programs(":".join([*PROGRAM_FOLDERS, *search]).split(":"), working_folder, paths)
    return programs.are_of_agent(_words(raw), WAITING_PATTERN if ends else IDLE_PATTERN) and all(
        programs.are_of_agent(_as_words(hook), LOOKING_PATTERN) for hook in hooks
    )


class _Programs(NamedTuple):
    """The programs that a container may run, and what of them volumes may have replaced.

    - `are_folders_own`: all programs without a folder are in folders of the image, but for
      `mounted_names`, which volumes contain.
    - `mounts`: the places of volumes, each with a slash at its end. All of them are
      `mounts_of_data` if no image works in them.
    """

    are_folders_own: bool
    mounted_names: Collection[str]
    working_folder: str
    mounts: Collection[str]
    are_mounts_of_data: bool

    def are_of_agent(self, words: Sequence[str], pattern: str) -> bool:
        """Return whether the command `words` runs only programs of the agent, or of `pattern`.

        Without words the image's own program runs.
        """
        if not words or not _fits(SHELL_PATTERN, words[0]):
            return all(self._is_of_agent(program, pattern) for program in words[:1])
        arguments = " ".join(words[1:])
        script = arguments.removeprefix("-c ").removeprefix("-- ")
        is_script = arguments.startswith("-c ") and _fits(AGENT_SCRIPT_PATTERN, script)
        if not is_script or not self._is_of_image(words[0]):
            return False
        begins = re.findall(COMMAND_BEGIN_PATTERN, script)
        programs = {found for b in begins for found in re.findall(PROGRAM_AT_END_PATTERN, b)}
        return all(self._is_of_agent(program, pattern) for program in programs)

    def _is_of_agent(self, program: str, pattern: str) -> bool:
        is_known = _fits(AGENT_PROGRAM_PATTERN, program) or _fits(pattern, program)
        return is_known and self._is_of_image(program)

    def _is_of_image(self, program: str) -> bool:
        """Return whether `program` is no file of a volume, as far as paths show it."""
        folder, slash, name = program.rpartition("/")
        if not slash:
            is_own = self.are_folders_own and name not in self.mounted_names
            return is_own and name not in FOREIGN_PARTS
        if not program.startswith("/"):
            in_folder = f"{self.working_folder or '.'}/{program}"
            is_known = in_folder.startswith("/") or self.are_mounts_of_data
            return is_known and not _is_foreign(in_folder, self.mounts)
        folders = PROGRAM_FOLDERS if clean_path(folder) in PROGRAM_FOLDERS else (folder,)
        return not any(_is_foreign(f"{each}/{name}", self.mounts) for each in folders)


def _programs(folders: Iterable[str], working_folder: str, paths: Iterable[str]) -> _Programs:
    """Return what a container with volumes at `paths` finds in `folders` and its own folder.

    Linear in the length of all texts, which an attacker may choose.
    """
    mounts = {f"{clean_path(path)}/".replace("//", "/") for path in paths}
    searched = {clean_path(folder) for folder in folders}
    parents = (mount[:-1].rpartition("/") for mount in mounts)
    return _Programs(
        are_folders_own=not any(_is_foreign(folder, mounts) for folder in {*folders}),
        mounted_names={name for parent, _, name in parents if (parent or "/") in searched},
        working_folder=working_folder,
        mounts=mounts,
        are_mounts_of_data=all(re.search(DATA_PATTERN, mount) for mount in mounts),
    )


def _is_foreign(path: str, mounts: Collection[str]) -> bool:
    """Return whether `path` is at or in one of `mounts`, or may lead out of the image."""
    whole = f"{clean_path(path)}/"
    return not FOREIGN_PARTS.isdisjoint(path.split("/")) or any(
        whole[: number + 1] in mounts for number, letter in enumerate(whole) if letter == "/"
    )


def _fits(pattern: str, text: str) -> bool:
    return len(text) <= MAX_COMMAND_CHARACTERS and re.fullmatch(pattern, text) is not None


def _words(raw: Mapping[str, Any]) -> list[str]:
    """Return what a container runs instead of the program of its image; empty if it runs that.

    Arguments alone replace the program of an image that has no entry point. A flag is none.
    """
    command, args = _as_words(raw.get("command")), _as_words(raw.get("args"))
    return command + args if command or (args and not args[0].startswith("-")) else []


def _as_words(command: Any) -> list[str]:
    return list(map(as_text, command)) if isinstance(command, list) else []


def _is_code(path: str) -> bool:
    # Where `..` leads depends on the links of the image.
    return PARENT in path or is_found(CODE_PATTERN, clean_path(path))


def _has_command(raw: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    return _hook(raw, path).get("exec") is not None


def _command(raw: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    return as_object(_hook(raw, path).get("exec")).get("command")


def _hook(raw: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    for key in path:
        raw = as_object(raw.get(key))
    return raw
