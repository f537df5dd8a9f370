"""Policies in files that extend other files, and their settings for some paths."""

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from policies.bundles import BUNDLES, extended_bundle
from policies.policy_settings import ExtendedPolicy, PolicySettings

MAX_EXTENDED_FILES = 10
_ENTRY_PATTERN = re.compile(r"(?P<path>[^@]+?)(?:@sha256:(?P<digest>[0-9a-f]{64}))?")


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
    settings: PolicySettings,
    name: str,
    load_settings: Callable[[str, bytes, tuple[str, ...]], PolicySettings],
    read_file: Callable[[str], bytes],
    seen: tuple[str, ...] = (),
) -> PolicySettings:
    """Return `settings`, of the file `name`, with those of the policies that it extends.

    `load_settings` returns them for another file, by its name, its content, and the names of the
    files that lead to it. Raises ExtendsError.
    """
    seen = (*seen, os.path.normpath(name))
    bases = []
    for index, entry in enumerate(settings.extends):
        file = parse_extends_entry(entry)
        if file is None:
            bases.append(extended_bundle(entry))
            continue
        path = os.path.normpath(os.path.join(os.path.dirname(name), file.path))
        if path in seen or len(seen) > MAX_EXTENDED_FILES:
            raise ExtendsError(
                f"{path} extends itself, or more than {MAX_EXTENDED_FILES} files in turn", index
            )
        try:
            content = read_file(path)
            _compare_digest(path, content, file.digest)
            bases.append(ExtendedPolicy(path, load_settings(path, content, seen).with_source(path)))
        except ValueError as error:  # so are all errors about policies
            raise ExtendsError(str(error), index) from error
    return settings.merged_with(bases, os.path.dirname(name))


def _compare_digest(path: str, content: bytes, wanted: str) -> None:
    if wanted and digest_of(content) != wanted:
        raise ValueError(
            f"{path} has another digest, sha256:{digest_of(content)}: if the change is wanted, "
            "`gpuward policy vendor` writes both anew"
        )
