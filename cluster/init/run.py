"""Run `gpuward init`: look at a cluster, and write or compare the files."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from cluster.init import POLICY, PRIORITY_QUOTA, VALUES
from cluster.init.callers import seen_callers
from cluster.init.choice import choose
from cluster.init.documents import (
    keep_unseen,
    note,
    unseen_keys,
    without_evidence,
    write_policy,
    write_priority_quota,
    write_values,
)
from cluster.init.facts import InitFacts, read_facts
from cluster.source.objects import ObjectReader, SourceError
from cluster.source.options import open_source
from cluster.webhooks.callers import Callers
from cluster.webhooks.dry_runs import NotTried, SendPod, open_with_dry_runs
from policies.loading import default_policy
from terminal import printable, reason_of, write_error

# The files on disk: how they differ from the new ones, and how they are replaced.

_MAX_BYTES = 1 << 20


class FileError(Exception):
    """A file cannot be read or written; the message says which and why."""


class GeneratedFile(NamedTuple):
    """A file: where it is to be, and its text."""

    path: str
    text: str


class Difference(NamedTuple):
    """The changes to a file as a unified diff, empty if there are none.

    `is_evidence` says that the lines are the same but for what stands behind them: what was seen.
    """

    text: str
    is_evidence: bool


def content(path: str) -> str | None:
    """The text of a file; None if there is no such file. Raises FileError."""
    try:
        with open(path, "rb") as stream:
            read = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path}: {reason_of(error)}") from error
    if len(read) > _MAX_BYTES:
        raise FileError(f"{path}: larger than {_MAX_BYTES >> 20} MiB")
    return read.decode(errors="replace")


def difference(file: GeneratedFile, present: str | None) -> Difference | None:
    """Return the changes to a file with the text `present`; None if there is no such file."""
    if present is None:
        return None
    old = present.splitlines(keepends=True)
    new = file.text.splitlines(keepends=True)
    changed = difflib.unified_diff(old, new, file.path, f"{file.path} (now)")
    text = "".join(text if text.endswith("\n") else f"{text}\n" for text in changed)
    return Difference(
        text, is_evidence=[*map(without_evidence, old)] == [*map(without_evidence, new)]
    )


def write(file: GeneratedFile) -> None:
    """Write the file, all or nothing. Raises FileError."""
    try:
        folder = os.path.dirname(file.path)
        os.makedirs(folder or ".", exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".gpuward-", dir=folder or ".")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(file.text)
            os.chmod(temporary, 0o644)
            os.replace(temporary, file.path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise FileError(f"{file.path}: {reason_of(error)}") from error


_HEADER = (
    "Written by `gpuward init`. Lines end with what was seen in the cluster. What is behind `# ` "
    "was not certain: decide, and remove the two characters."
)
_INSTALL = (
    "helm install gpuward oci://ghcr.io/gpuward/charts/gpuward -n gpuward-system "
    f"--create-namespace -f {VALUES} --set-file policyText={POLICY}"
)


def run(options: argparse.Namespace) -> int:
    """Write or compare the files that fit the cluster of the options; the exit status."""
    try:
        source, request, send = _open(options)
        found = read_facts(source, default_policy().profile)
        callers = seen_callers(source, request, send)
        files = _files(found, callers, options.directory)
        unseen = unseen_keys(found.forbidden, callers)
        status = _compare_or_write(files, unseen, replace=options.write)
    except (SourceError, FileError) as error:
        write_error("gpuward init", error)
        return 2
    if found.forbidden:
        names = ", ".join(sorted(str(resource) for resource in found.forbidden))
        write_error("gpuward init", f"the account may not list {names}: see the files")
        return 3
    return status


def _open(
    options: argparse.Namespace,
) -> tuple[ObjectReader, Callable[[str], str] | None, SendPod | None]:
    """Return the options' objects, and the functions for requests and dry runs.

    Raises SourceError.
    """
    if options.files:
        return open_source(options), None, None
    source, send = open_with_dry_runs(options)
    return source, source.get_text, send


def _files(found: InitFacts, callers: Callers | NotTried, folder: str) -> list[GeneratedFile]:
    policy, profile = write_policy(found, choose(found))
    values = write_values(found, profile, callers)
    missing = [
        line
        for resource, why in found.missing.items()
        for line in (note(f"Not known: {resource.name} ({why}).") if why else ())
    ]
    if absent := [resource.kind for resource, why in found.missing.items() if not why]:
        missing += note(f"Not known, because the files contain none: {', '.join(absent)}.")
    texts = {
        POLICY: [*note(_HEADER), *missing, *policy],
        VALUES: [*note(_HEADER), f"# {_INSTALL}", *missing, *values],
        PRIORITY_QUOTA: write_priority_quota(PRIORITY_QUOTA),
    }
    return [
        GeneratedFile(os.path.normpath(os.path.join(folder, name)), "\n".join(lines) + "\n")
        for name, lines in texts.items()
    ]


def _compare_or_write(files: list[GeneratedFile], unseen: Sequence[str], *, replace: bool) -> int:
    """Write files that are not there, and show what differs in the others; the exit status.

    The keys `unseen` stay in the files.
    """
    status = 0
    changes = []
    for generated in files:
        file, present = generated, content(generated.path)
        if present is not None:
            text, kept = keep_unseen(file.text, present, unseen)
            file = file._replace(text=text)
            if kept:
                _say(f"{file.path}: kept as it cannot be seen: {', '.join(kept)}")
        changes.append((file, difference(file, present)))
    for file, changed in changes:
        if changed and changed.text:
            status = status if changed.is_evidence else 1
            sys.stdout.writelines(f"{printable(text)}\n" for text in changed.text.splitlines())
        if changed is None or (changed.text and replace):
            write(file)
            _say(f"wrote {file.path}")
        elif changed.text:
            only = " only in comments about what was seen" if changed.is_evidence else ""
            end = "and was not changed: --write replaces it"
            _say(f"{file.path} differs{only}, {end}")
        else:
            _say(f"{file.path} is up to date")
    return status


def _say(line: str) -> None:
    sys.stderr.write(f"{printable(line)}\n")
