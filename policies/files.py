"""Policies in files that extend other files, and their settings for some paths."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from policies.bundles import BUNDLES, ExtendedPolicy
from policies.policy import FOLDER_KEY

ReadFile = Callable[[str], bytes]
MAX_EXTENDED_FILES = 10
_ENTRY_PATTERN = re.compile(r"(?P<path>[^@]+?)(?:@sha256:(?P<digest>[0-9a-f]{64}))?")
_MERGED_LISTS = ("exceptions", "gpuExceptions", "perPath")
# What is about one file alone, and not about those that extend it.
_KEYS_OF_ONE_FILE = {"apiVersion", "kind", "extends", "rules", "lint"}


class ExtendsError(ValueError):
    """A file that a policy extends and that cannot be used.

    `index` is its place in `extends`. The message says why; it has lines of its own if that is
    about the content of the file.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class ExtendsEntry(NamedTuple):
    """An entry of `extends` that names a file; `digest` is empty if any content will do."""

    path: str
    digest: str


def parse_extends_entry(entry: str) -> ExtendsEntry | None:
    """The file that the entry of `extends` names; None for a bundle."""
    match = _ENTRY_PATTERN.fullmatch(entry)
    if entry in BUNDLES or match is None or not re.search(r"/|\.ya?ml\Z", match["path"]):
        return None
    return ExtendsEntry(match["path"], match["digest"] or "")


def digest_of(content: bytes) -> str:
    """The SHA-256 of the content of a file, in hexadecimal."""
    import hashlib  # noqa: PLC0415  # few policies name a digest

    return hashlib.sha256(content).hexdigest()


def with_extended_files(
    raw: Mapping[str, Any],
    name: str,
    read_raw: Callable[[str, bytes, tuple[str, ...]], Mapping[str, Any]],
    read_file: ReadFile,
    seen: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The policy `raw`, the content of the file `name`, with what it has of files that it extends.

    In `extends`, an `ExtendedPolicy` takes the place of each file. `read_raw` gives the resolved
    policy in the content of such a file, by its name and those of the files that lead to it.

    Raises BaseError.
    """
    seen = (*seen, os.path.normpath(name))
    extends: list[Any] = []
    for index, entry in enumerate(raw.get("extends", ())):
        file = parse_extends_entry(entry)
        if file is None:
            extends.append(entry)
            continue
        path = os.path.normpath(os.path.join(os.path.dirname(name), file.path))
        if path in seen or len(seen) > MAX_EXTENDED_FILES:
            raise ExtendsError(
                f"{path} extends itself, or more than {MAX_EXTENDED_FILES} files in turn", index
            )
        try:
            content = read_file(path)
            _compare_digest(path, content, file.digest)
            extends.append(ExtendedPolicy(path, read_raw(path, content, seen)))
        except ValueError as error:  # so are all errors about policies
            raise ExtendsError(str(error), index) from error
    return _merged(raw, extends, os.path.dirname(name))


def _compare_digest(path: str, content: bytes, wanted: str) -> None:
    if wanted and digest_of(content) != wanted:
        raise ValueError(
            f"{path} has another digest, sha256:{digest_of(content)}: if the change is wanted, "
            "`gpuward policy vendor` writes both anew"
        )


def _merged(raw: Mapping[str, Any], extends: list[Any], folder: str) -> dict[str, Any]:
    """Return the merged settings of `raw` and its bases, apart from rules.

    Lists are added; of other settings the last one counts.
    """
    merged: dict[str, Any] = {}
    for base in extends:
        for key, value in base.raw.items() if isinstance(base, ExtendedPolicy) else ():
            if key in _MERGED_LISTS:
                merged[key] = [*merged.get(key, ()), *value]
            elif key not in _KEYS_OF_ONE_FILE:
                merged[key] = value
    for key, value in raw.items():
        if key in _MERGED_LISTS:
            merged[key] = [*merged.get(key, ()), *_with_folder(value, folder, key)]
        elif key != "extends":
            merged[key] = value
    return {**merged, "extends": extends} if extends else merged


def _with_folder(entries: list[Any], folder: str, key: str) -> list[Any]:
    return [{**entry, FOLDER_KEY: folder} for entry in entries] if key == "perPath" else entries
