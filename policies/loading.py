"""Read a policy from its file and turn its text into a `Policy`, or report each problem."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

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
from policies.bundles import Setting, entries_with_missing_profiles, rule_settings
from policies.exceptions import as_patterns, to_exception, to_gpu_exception_limits
from policies.policy import FOLDER_KEY, LoadedPolicy, PathSettings, Policy, RuleSettings
from policies.problems import Problem
from policies.profiles import ProfileError, merged_profile
from rules.base.json_values import Path, as_object
from rules.finding import Action

if TYPE_CHECKING:
    from policies.files import ReadFile

MAX_POLICY_CHARACTERS = 1 << 20
MAX_PROBLEMS = 20
MAX_DOCUMENTS = 100
_YAML_LIMITS = Limits(max_depth=30, max_nodes=100_000, max_alias_nodes=10_000)


class PolicyError(ValueError):
    """The policy cannot be used. The message has one line for each problem, with its position."""


def default_policy(profiles: Iterable[str] = ()) -> Policy:
    """Return the policy for users without a policy file: every rule has its default settings.

    `profiles` are names of built-in profiles; the default is `nvidia`. Raises PolicyError for a
    profile that does not exist, or for profiles that cannot be combined.
    """
    try:
        return Policy(profile=merged_profile(list(profiles) or ["nvidia"]))
    except ProfileError as error:
        raise PolicyError(str(error)) from error


def load_policy(
    text: str, name: str, profiles: Iterable[str] = (), read_file: ReadFile | None = None
) -> Policy:
    """Return the policy in `text`, the content of the file called `name`.

    `profiles`, if not empty, replace the profiles that the policy names. `read_file` reads files
    that the policy extends; without it, that is an error. Raises PolicyError if the text is not a
    valid policy; each line of the message begins with `name:line:column`.
    """
    return load_policy_and_raw(text, name, profiles, read_file).policy


def load_policy_and_raw(
    text: str, name: str, profiles: Iterable[str] = (), read_file: ReadFile | None = None
) -> LoadedPolicy:
    """Return the policy in `text` with its YAML, which has what the policy extends.

    The arguments are those of `load_policy`. Raises PolicyError.
    """
    document = parse_document(text, name)
    raw = _raw_with_extended_files(document, text, name, read_file)
    problems: list[Problem]
    try:
        policy = _policy_from_raw(raw, list(profiles))
        missing = entries_with_missing_profiles(raw, policy.profile)
        problems = [(("extends", index), message) for index, message in missing]
    except ProfileError as error:
        problems = [(("profiles",), str(error))]
    if not problems:
        return LoadedPolicy(policy, raw)
    raise _policy_error(problems, document, text, name)


def _raw_with_extended_files(
    document: Document,
    text: str,
    name: str,
    read_file: ReadFile | None,
    seen: tuple[str, ...] = (),
) -> Mapping[str, Any]:
    """Return the YAML of the policy with that of the files it extends. Raises PolicyError."""
    # Import them only if there is a policy.
    from policies.files import ExtendsError, with_extended_files  # noqa: PLC0415
    from policies.validation import find_policy_problems  # noqa: PLC0415

    raw: Any = document.value
    problems = [
        *islice(
            chain(_duplicate_key_problems(document), find_policy_problems(raw)), MAX_PROBLEMS + 1
        )
    ]
    if problems:
        raise _policy_error(problems, document, text, name)

    def read_raw(path: str, content: bytes, seen: tuple[str, ...]) -> Mapping[str, Any]:
        inner = decode_policy(content, path)
        return _raw_with_extended_files(parse_document(inner, path), inner, path, read_file, seen)

    try:
        return with_extended_files(raw, name, read_raw, read_file or _refuse_file, seen)
    except ExtendsError as error:
        first, *others = str(error).split("\n")
        found = _policy_error([(("extends", error.index), first)], document, text, name)
        raise PolicyError("\n".join([str(found), *others])) from error


def _refuse_file(path: str) -> bytes:
    raise PolicyError(
        f"only the linter reads {path}: `gpuward policy show -o yaml` writes the policy as one file"
    )


def _policy_error(
    problems: Iterable[Problem], document: Document, text: str, name: str
) -> PolicyError:
    located = sorted((offset_of(document, path), message) for path, message in problems)
    lines = [_with_position(text, name, *problem) for problem in located]
    return PolicyError("\n".join(lines[:MAX_PROBLEMS] + ["and more"] * (len(lines) > MAX_PROBLEMS)))


def parse_document(text: str, name: str) -> Document:
    """Return the only document in `text`, the content of the file called `name`.

    Raises PolicyError if the text is too long, is not YAML, or has not just one document.
    """
    if len(text) > MAX_POLICY_CHARACTERS:
        raise PolicyError(f"{name}: a policy may have at most {MAX_POLICY_CHARACTERS} characters")
    try:
        documents = [
            d for chunk in islice(split(text), MAX_DOCUMENTS) if (d := read(chunk, _YAML_LIMITS))
        ]
    except YamlError as error:
        raise PolicyError(_with_position(text, name, error.offset, error.message)) from error
    if not documents:
        raise PolicyError(f"{name}: the file is empty; a policy begins with\n{_POLICY_HEAD}")
    if len(documents) > 1:
        message = "a second document: a policy file has one, so merge them or use a file for each"
        raise PolicyError(_with_position(text, name, documents[1].place.start, message))
    return documents[0]


_POLICY_HEAD = "apiVersion: gpuward.io/v1\nkind: Policy"


def _with_position(text: str, name: str, offset: int, message: str) -> str:
    line, column = line_and_column(text, offset)
    return f"{name}:{line}:{column}: {message}"


def offset_of(document: Document, path: Path) -> int:
    """Return the offset of the key or value at `path`, or of its nearest parent in the text."""
    place = document.place
    for step in path:
        inside: Any = place.inside
        try:
            place = inside[step]
        except (KeyError, IndexError, TypeError):
            break
    return place.key_start if place.key_start >= 0 else place.start


def _duplicate_key_problems(document: Document) -> Iterator[tuple[Path, str]]:
    for duplicate in document.duplicates:
        yield duplicate.path, f"the key {duplicate.path[-1]!r} is here twice"


def _settings_by_rule(raw: Mapping[str, Any]) -> dict[str, RuleSettings]:
    return {name: _settings_from_values(values) for name, values in rule_settings(raw).items()}


def _path_settings(raw: Mapping[str, Any], profiles: list[str]) -> PathSettings:
    listed = raw.get("profiles")
    return PathSettings(
        path_patterns=as_patterns(raw["paths"]),
        folder=raw.get(FOLDER_KEY, ""),
        profile=merged_profile(listed) if listed and not profiles else None,
        namespace=raw.get("namespace"),
        rules=_settings_by_rule(raw),
        exceptions=tuple(to_exception({"match": {}, **e}) for e in raw.get("exceptions", ())),
        has_profiles=bool(listed),
    )


def _policy_from_raw(raw: Mapping[str, Any], profiles: list[str]) -> Policy:
    listed = raw.get("profiles", ["nvidia"])
    custom = [profile for profile in listed if not isinstance(profile, str)]
    policy = Policy(
        profile=merged_profile(profiles, custom) if profiles else merged_profile(listed),
        rules=_settings_by_rule(raw),
        exceptions=tuple(to_exception(e) for e in raw.get("exceptions", [])),
        gpu_exception_limits=tuple(
            to_gpu_exception_limits(d) for d in raw.get("gpuExceptions", [])
        ),
        catalog=raw.get("catalog"),
        per_path=tuple(_path_settings(entry, profiles) for entry in raw.get("perPath", ())),
        lint=raw.get("lint", {}),
    )
    return policy._replace(
        on_rule_error=raw.get("onRuleError", policy.on_rule_error),
        workloads=raw.get("workloads", policy.workloads),
        void_every_container=raw.get("voidEveryContainer", policy.void_every_container),
        contact=raw.get("contact", policy.contact).strip(),
        docs_url=raw.get("docsUrl", policy.docs_url).strip(),
        nag=raw.get("nag", policy.nag),
    )


def _settings_from_values(values: Mapping[tuple[str, ...], Setting]) -> RuleSettings:
    plain = {path[0]: given.value for path, given in values.items() if len(path) == 1}
    options = {path[1]: given.value for path, given in values.items() if len(path) > 1}
    return RuleSettings(
        action=Action[plain["action"].upper()] if "action" in plain else None,
        fix=plain.get("fix"),
        options={k: tuple(v) if isinstance(v, list) else v for k, v in options.items()},
        suppressible=plain.get("suppressible", True),
    )


POLICY_FILE = "gpuward.yaml"
"""The name of a policy file, also as a key of the chart's ConfigMap."""
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
        raise PolicyError(f"{name}: {(error.strerror or str(error)).lower()}") from error
    return refuse_large_content(name, content)


def refuse_large_content(path: str, content: bytes) -> bytes:
    """Return `content`, or raise PolicyError if it is larger than `MAX_POLICY_BYTES`."""
    if len(content) > MAX_POLICY_BYTES:
        raise PolicyError(f"{path}: a policy may have at most {MAX_POLICY_CHARACTERS} characters")
    return content


def parse_policy(
    content: bytes, name: str, profiles: Iterable[str] = (), read_file: ReadFile | None = None
) -> Policy:
    """Return the policy in `content`, the bytes of the file called `name`.

    `profiles`, if not empty, replace the profiles that the policy names. `read_file` is as for
    `load_policy`. Raises PolicyError if the content is not UTF-8 or not a valid policy.
    """
    return load_policy(decode_policy(content, name), name, profiles, read_file)


def decode_policy(content: bytes, name: str) -> str:
    """Return the text of the file called `name`. Raises PolicyError if it is not UTF-8."""
    try:
        return decode(content)
    except EncodingError as error:
        raise PolicyError(f"{name}: {error}") from error


def load_policy_file(file: str | None, profiles: Iterable[str]) -> Policy:
    """Return the policy in `file` as the webhook loads it, or the default one without a file.

    `profiles`, if not empty, replace those of the policy. Raises PolicyError, which names file,
    line and column.
    """
    if file is None:
        return default_policy(profiles)
    return parse_policy(read_policy_file(file), file, profiles)


def load_policy_or_config_map(
    file: str | None, profiles: Iterable[str], read_file: Callable[[str], bytes] = read_policy_file
) -> Policy:
    """Return the policy in `file`, or in the manifest of a ConfigMap as the chart makes it.

    Without a file it is the default policy. `profiles`, if not empty, replace those of the policy.
    Such a manifest has the policy in its key `gpuward.yaml`; lines and columns in a PolicyError are
    counted in the text of that key. `read_file` returns the content of `file`, and raises
    PolicyError.
    """
    if file is None:
        return default_policy(profiles)
    content, name = read_policy_content(file, read_file)
    return parse_policy(content, name, profiles, read_file)


def read_policy_content(
    file: str, read_file: Callable[[str], bytes] = read_policy_file
) -> tuple[bytes, str]:
    """Return the policy in `file` or in the ConfigMap that it has, and the name to call it by.

    Raises PolicyError.
    """
    content = read_file(file)
    text = _text_in_config_map(content, file) if b"ConfigMap" in content else None
    return (content, file) if text is None else (text.encode(), f"{file}[{POLICY_FILE}]")


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
