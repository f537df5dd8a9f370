"""Read a policy from its file and turn its text into a `Policy`, or report each problem."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from kubeyaml import (
    Document,
    EncodingError,
    Limits,
    YamlError,
    decode,
    line_and_column,
    read,
    split,
)
from policies import POLICY_FILE
from policies.policy import DEFAULT_PROFILES, Policy
from policies.problems import Problem
from policies.profiles import ProfileError, merged_profile
from rules.base.json_values import Path, as_object, as_text
from terminal import reason_of

if TYPE_CHECKING:
    from policies.policy_settings import LoadedPolicy, PolicySettings

ReadFile: TypeAlias = Callable[[str], bytes]
"""Returns the content of a file; raises PolicyError if it cannot."""
MAX_POLICY_CHARACTERS = 1 << 20
MAX_PROBLEMS = 20
MAX_DOCUMENTS = 100
_YAML_LIMITS = Limits(max_depth=30, max_nodes=100_000, max_alias_nodes=10_000)


class PolicyError(ValueError):
    """The policy cannot be used. The message has one line for each problem, with its position."""


class PolicyDocument(NamedTuple):
    """The YAML of a policy in the `text` of the file called `name`, with the places of its parts.

    Whether it is a valid policy, `load_policy_document` says.
    """

    name: str
    text: str
    yaml: Document

    @classmethod
    def parse(cls, content: str | bytes, name: str) -> Self:
        """Return the only document in `content`, a text or its bytes, of the file called `name`.

        Raises PolicyError if `content` is too long, is not UTF-8 or YAML, or has not just one
        document.
        """
        text = content if isinstance(content, str) else _decode(content, name)
        if len(text) > MAX_POLICY_CHARACTERS:
            raise PolicyError(
                f"{name}: a policy may have at most {MAX_POLICY_CHARACTERS} characters"
            )
        try:
            documents = [
                d
                for chunk in islice(split(text), MAX_DOCUMENTS)
                if (d := read(chunk, _YAML_LIMITS))
            ]
        except YamlError as error:
            raise PolicyError(_with_position(text, name, error.offset, error.message)) from error
        if not documents:
            raise PolicyError(f"{name}: the file is empty; a policy begins with\n{_POLICY_HEAD}")
        if len(documents) > 1:
            message = (
                "a second document: a policy file has one, so merge them or use a file for each"
            )
            raise PolicyError(_with_position(text, name, documents[1].place.start, message))
        return cls(name, text, documents[0])

    def error(self, problems: Iterable[Problem]) -> PolicyError:
        """Return an error that names each problem with its line and column."""
        located = sorted((self._offset(path), message) for path, message in problems)
        lines = [_with_position(self.text, self.name, *problem) for problem in located]
        more = ["and more"] * (len(lines) > MAX_PROBLEMS)
        return PolicyError("\n".join(lines[:MAX_PROBLEMS] + more))

    def line(self, path: Path) -> int:
        """Return the line, from 1, of the key or value at `path`, or of its nearest parent."""
        line, _ = line_and_column(self.text, self._offset(path))
        return line

    def _offset(self, path: Path) -> int:
        place = self.yaml.place
        for step in path:
            inside: Any = place.inside
            try:
                place = inside[step]
            except (KeyError, IndexError, TypeError):
                break
        return place.key_start if place.key_start >= 0 else place.start


def default_policy(profiles: Iterable[str] = ()) -> Policy:
    """Return the policy for users without a policy file: every rule has its default settings.

    `profiles` are names of built-in profiles; the default is `nvidia`. Raises PolicyError for a
    profile that does not exist, or for profiles that cannot be combined.
    """
    try:
        return Policy(profile=merged_profile(list(profiles) or DEFAULT_PROFILES))
    except ProfileError as error:
        raise PolicyError(str(error)) from error


def load_policy(
    content: str | bytes,
    name: str,
    profiles: Iterable[str] = (),
    read_file: ReadFile | None = None,
) -> Policy:
    """Return the policy in `content`, the text or the bytes of the file called `name`.

    `profiles`, if not empty, replace the profiles that the policy names. `read_file` reads files
    that the policy extends; without it, that is an error. Raises PolicyError if `content` is not a
    valid policy; each line of the message begins with `name:line:column`.
    """
    return load_policy_document(PolicyDocument.parse(content, name), profiles, read_file).policy


def load_policy_file(
    file: str | None, profiles: Iterable[str], read_file: ReadFile | None = None
) -> Policy:
    """Return the policy in `file`, or in the manifest of a ConfigMap as the chart makes it.

    Without a file it is the default policy. `profiles`, if not empty, replace those of the policy.
    Lines and columns in a PolicyError are those of `read_policy_content`. `read_file` reads the
    file, and those that it extends; the default is `read_policy_file`.
    """
    if file is None:
        return default_policy(profiles)
    read_file = read_file or read_policy_file
    return load_policy(*read_policy_content(file, read_file), profiles, read_file)


def load_policy_document(
    document: PolicyDocument, profiles: Iterable[str] = (), read_file: ReadFile | None = None
) -> "LoadedPolicy":
    """Return the policy in `document`, and its settings.

    `profiles` and `read_file` are as for `load_policy`. Raises PolicyError.
    """
    # They take time to import, and a run without a policy file does not need them.
    from policies.bundles import bases_with_missing_profiles  # noqa: PLC0415
    from policies.policy_settings import LoadedPolicy, to_policy  # noqa: PLC0415
    from policies.validation import exclusion_problems  # noqa: PLC0415

    settings = _settings_with_bases(document, read_file or _refuse_file)
    problems: list[Problem]
    try:
        policy = to_policy(settings, list(profiles))
        missing = bases_with_missing_profiles(settings, policy.profile)
        problems = [(("extends", index), message) for index, message in missing]
        problems += exclusion_problems(policy)
    except ProfileError as error:
        problems = [(("profiles",), str(error))]
    if problems:
        raise document.error(problems)
    return LoadedPolicy(policy, settings)


def _settings_with_bases(
    document: PolicyDocument, read_file: ReadFile, seen: tuple[str, ...] = ()
) -> "PolicySettings":
    """Return the settings of the policy and of those that it extends. Raises PolicyError."""
    from policies.files import ExtendsError, with_extended_files  # noqa: PLC0415
    from policies.validation import check_policy  # noqa: PLC0415

    problems = [*islice(_duplicate_key_problems(document.yaml), MAX_PROBLEMS + 1)]
    settings, others = check_policy(document.yaml.value, MAX_PROBLEMS + 1 - len(problems))
    if problems := problems + others:
        raise document.error(problems)

    def load_settings(path: str, content: bytes, seen: tuple[str, ...]) -> "PolicySettings":
        return _settings_with_bases(PolicyDocument.parse(content, path), read_file, seen)

    try:
        return with_extended_files(settings, document.name, load_settings, read_file, seen)
    except ExtendsError as error:
        first, *others_of_file = str(error).split("\n")
        found = document.error([(("extends", error.index), first)])
        raise PolicyError("\n".join([str(found), *others_of_file])) from error


def _refuse_file(path: str) -> bytes:
    raise PolicyError(
        f"only the linter reads {path}: `gpuward policy show -o yaml` writes the policy as one file"
    )


_POLICY_HEAD = "apiVersion: gpuward.io/v1\nkind: Policy"


def _with_position(text: str, name: str, offset: int, message: str) -> str:
    line, column = line_and_column(text, offset)
    return f"{name}:{line}:{column}: {message}"


def _duplicate_key_problems(document: Document) -> Iterator[Problem]:
    for duplicate in document.duplicates:
        yield duplicate.path, f"the key {duplicate.path[-1]!r} is here twice"


MAX_POLICY_BYTES = 4 * MAX_POLICY_CHARACTERS  # UTF-8 has at most 4 bytes a character


def read_policy_file(path: str, name: str = "") -> bytes:
    """Return the content of the file at `path`, which errors call `name`.

    Raises PolicyError if the file cannot be read, is not a regular file, or is larger than
    `MAX_POLICY_BYTES`.
    """
    name = name or path
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise PolicyError(f"{name}: not a regular file")
        with open(path, "rb") as stream:
            content = stream.read(MAX_POLICY_BYTES + 1)
    except OSError as error:
        raise PolicyError(f"{name}: {reason_of(error)}") from error
    return refuse_large_content(name, content)


def refuse_large_content(path: str, content: bytes) -> bytes:
    """Return `content`, or raise PolicyError if it is larger than `MAX_POLICY_BYTES`."""
    if len(content) > MAX_POLICY_BYTES:
        raise PolicyError(f"{path}: a policy may have at most {MAX_POLICY_CHARACTERS} characters")
    return content


def read_policy_content(file: str, read_file: ReadFile = read_policy_file) -> tuple[bytes, str]:
    """Return the policy in `file` or in the ConfigMap that it has, and the name to call it by.

    The manifest of a ConfigMap has the policy in its key `gpuward.yaml`; its name is of that key,
    so that lines and columns are counted in its text. Raises PolicyError.
    """
    content = read_file(file)
    text = _text_in_config_map(content, file) if b"ConfigMap" in content else None
    return (content, file) if text is None else (text.encode(), f"{file}[{POLICY_FILE}]")


def is_of_another_program(content: bytes) -> bool:
    """Return whether `content` is a file of another program, although it is called as a policy.

    That is a manifest of another kind or of another API, or YAML without any key that is, or nearly
    is, one of a policy, such as a workflow of GitHub Actions. A ConfigMap that holds a policy
    counts as one. An empty file and one that cannot be read may be meant as a policy, unless its
    kind and API are others and it is no ConfigMap with a key that is called as a policy; the
    template of such a ConfigMap is of another program.
    """
    text = ""
    try:
        text = decode(content)
        chunks = islice(split(text), MAX_DOCUMENTS)
        documents = [found for chunk in chunks if (found := read(chunk, _YAML_LIMITS))]
        values: list[Any] = [document.value for document in documents]
    except EncodingError:
        return False
    except YamlError:
        values = list(_heads(text))
    return bool(values) and not any(_may_be_policy(value) for value in values)


# `rulez` is as like to `rules` as this, and `releases` is not.
_LIKENESS = 0.8
_HEAD_PATTERN = re.compile(r"^(apiVersion|kind):[ \t]*[\"']?([^\s#\"']+)", re.MULTILINE)
_POLICY_KEY_PATTERN = re.compile(rf"[\s{{,\"']{re.escape(POLICY_FILE)}[\"']?[ \t]*:")


def _heads(text: str) -> Iterator[dict[str, object]]:
    """Yield what the documents in `text`, which is no YAML, say about their kinds and APIs.

    Documents that say nothing of both are left out.
    """
    for document in re.split("^---", text, flags=re.MULTILINE):
        head: dict[str, object] = dict(re.findall(_HEAD_PATTERN, document))
        if _POLICY_KEY_PATTERN.search(document) and "{{" not in document:
            head["data"] = {POLICY_FILE: ""}
        if head.keys() >= {"apiVersion", "kind"}:
            yield head


def _may_be_policy(value: Any) -> bool:
    if not (isinstance(value, dict | list) and value):
        return True
    raw = as_object(value)
    kind, version = raw.get("kind"), raw.get("apiVersion")
    if kind == "Policy" and not isinstance(version, str):
        return True
    # Few files need them.
    from difflib import get_close_matches  # noqa: PLC0415

    from policies.validation import policy_schema  # noqa: PLC0415

    if isinstance(kind, str) and isinstance(version, str):
        if "gpuward" in version.lower():
            return True
        if kind == "ConfigMap":
            return POLICY_FILE in as_object(raw.get("data"))
        group, slash, _ = version.lower().rpartition("/")
        is_api_like = get_close_matches(group, ["gpuward", "gpuward.io"], cutoff=_LIKENESS)
        is_kind_like = get_close_matches(kind.lower(), ["policy"], cutoff=_LIKENESS)
        return bool(is_kind_like and (is_api_like or not slash))
    known = list(policy_schema()["properties"])
    return any(get_close_matches(as_text(key), known, n=1, cutoff=_LIKENESS) for key in raw)


def _decode(content: bytes, name: str) -> str:
    try:
        return decode(content)
    except EncodingError as error:
        raise PolicyError(f"{name}: {error}") from error


def _text_in_config_map(content: bytes, file: str) -> str | None:
    """The policy in a ConfigMap's manifest; None if `content` is no such manifest."""
    try:
        documents = [document for chunk in split(content.decode()) if (document := read(chunk))]
    except (YamlError, UnicodeDecodeError):
        return None  # reading it as a policy says what is wrong, and where
    manifest = as_object(documents[0].value) if len(documents) == 1 else {}
    if manifest.get("kind") != "ConfigMap":
        return None
    text = as_object(manifest.get("data")).get(POLICY_FILE)
    if not isinstance(text, str):
        raise PolicyError(f"{file}: this ConfigMap has no policy: its data has no {POLICY_FILE}")
    return text
