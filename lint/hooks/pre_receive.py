"""Evaluate what a push changes, on a Git server, before the server accepts it."""

from __future__ import annotations

import argparse
import datetime
import io
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import BinaryIO, NamedTuple, TextIO

from lint.linter import Linter
from lint.options import add_exclude_option, add_profile_option
from policies.loading import default_policy, load_policy, read_policy_file
from policies.policy import Policy
from reports.formats import ReportStyle, writer_of
from reports.results import Results
from rules.profile.context import Context
from sources.git.changes import changed_sources
from sources.git.command import GitError, git_line
from sources.git.trees import BlobReader, GitTree, commit_entries
from sources.kustomization_files import Kustomizations
from sources.paths import Exclusion
from sources.policy_file import OnePolicy
from sources.sources import (
    SkippedSource,
    Source,
    UnreadableSource,
    UsageError,
    reduce_garbage_collection,
)
from terminal import printable

_REPEAT_SECONDS = 1.0  # seconds; Python drops what is raised in a finalizer


class OutOfTimeError(BaseException):
    """The time is over. Nothing but the caller of `time_limit` handles this."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the block when `seconds` are over, also while it waits for Git.

    The server would kill a run that takes longer without a word. Use it in the main
    thread. Windows has no such alarm: there is no limit there.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, _raise_out_of_time)
    signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _raise_out_of_time(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTimeError


MAX_REFS = 100
MAX_MANIFESTS = 20_000
MAX_PUSHED_CHARACTERS = 64 * 1024 * 1024
DEFAULT_TIMEOUT_SECONDS = 60.0  # seconds
MAX_TIMEOUT_SECONDS = 86_400.0
DESCRIPTION = """\
Evaluate the manifests that a push changes, as a pre-receive hook of a Git server, which gives
the old commit, the new commit and the name of each ref on standard input. The changes of a
new branch are those since it left the default branch. Nothing in the repository configures
this: the policy is the one that --policy names, or the default one."""
EPILOG = """\
exit status: 0 the push may pass, 1 findings at or above --fail-on,
2 wrong usage or a policy that cannot be used, 3 something could not be evaluated"""
_MAX_LINE_BYTES = 64 * 1024
_OBJECT_NAME_PATTERN = b"([0-9a-f]{40}|[0-9a-f]{64})"
_MATCH_LINE = re.compile(
    _OBJECT_NAME_PATTERN + b" " + _OBJECT_NAME_PATTERN + b" ([^\n]+)\n?"
).fullmatch


class Push(NamedTuple):
    """One ref that is pushed: the name of its old object, of its new one, and its own."""

    old: str
    new: str
    ref: str


class PushSettings(NamedTuple):
    """The options of the command, as the server's hook gives them."""

    policy: str | None
    profiles: tuple[str, ...]
    namespace: str | None
    exclude: tuple[str, ...]
    output: str
    fail_on: str
    timeout: float


def push_settings(options: argparse.Namespace) -> PushSettings:
    """Return what the options of `add_options` say."""
    return PushSettings(
        policy=options.policy,
        profiles=tuple(options.profile),
        namespace=options.namespace,
        exclude=tuple(options.exclude),
        output=options.output,
        fail_on=options.fail_on,
        timeout=options.timeout,
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--policy", metavar="FILE", help="the policy, a file of the server")
    add_profile_option(parser)
    parser.add_argument("--namespace", "-n", help="the namespace of objects that name none")
    add_exclude_option(parser)
    parser.add_argument(
        "--output", "-o", choices=("text", "concise"), default="text", help="default: text"
    )
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning", "note"),
        default="error",
        help="the level of findings for which a push is refused; default: error",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_parse_seconds,
        default=DEFAULT_TIMEOUT_SECONDS,
        help="refuse a push that takes longer; default: %(default)g. Choose less than the time "
        "after which the server ends hooks",
    )


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        why = f"{text}: expected seconds, more than 0 and at most {MAX_TIMEOUT_SECONDS:g}"
        raise argparse.ArgumentTypeError(why)
    return seconds


def judge_pushes(settings: PushSettings, pushed: BinaryIO, out: TextIO) -> int:
    """Judge each ref in the lines of `pushed`, and report to `out`; the exit status.

    Raises PolicyError, and UsageError for lines that no Git server writes.
    """
    reduce_garbage_collection()
    file = settings.policy
    if file is None:
        policy = default_policy(settings.profiles)
    else:
        policy = load_policy(read_policy_file(file), file, settings.profiles)
    status, place = 0, "standard input"
    try:
        with time_limit(settings.timeout):
            git_line("rev-parse", "--git-dir")  # an error once, rather than for each ref
            for push in _pushes(pushed):
                place = push.ref
                status = max(status, _judge_push(push, policy, settings, out))
    except OutOfTimeError:
        why = f"evaluating this push took more than {settings.timeout:g} seconds"
        remedy = "push fewer changes at once, or raise --timeout in the server's hook"
        out.write(printable(f"gpuward: {place}: not evaluated: {why}: {remedy}") + "\n")
        return 3
    return status


def _judge_push(push: Push, policy: Policy, settings: PushSettings, out: TextIO) -> int:
    """Judge one ref, and report to `out` unless it may pass; the exit status."""
    if not push.new.strip("0"):
        return 0  # the ref is deleted
    try:
        results = _evaluate_push(push, policy, settings)
    except GitError as error:
        out.write(printable(f"gpuward: {push.ref}: not evaluated: {error}") + "\n")
        return 3
    status = results.exit_status(settings.fail_on)
    if status:
        report = io.StringIO()  # the time may end within a line
        style = ReportStyle(notes=settings.fail_on == "note", fail_on=settings.fail_on)
        writer_of(settings.output)(report, results, style)
        out.write(printable(f"gpuward: {push.ref}:") + f"\n{report.getvalue()}")
    return status


def _pushes(pushed: BinaryIO) -> Iterator[Push]:
    for number, line in enumerate(iter(lambda: pushed.readline(_MAX_LINE_BYTES), b"")):
        if number == MAX_REFS:
            raise UsageError(f"more than {MAX_REFS} refs: push them in parts")
        match = _MATCH_LINE(line)
        if not match:
            raise UsageError("each line of standard input must be: OLD NEW REF")
        old, new, ref = map(os.fsdecode, match.groups())
        yield Push(old, new, ref)


def _evaluate_push(push: Push, policy: Policy, settings: PushSettings) -> Results:
    """Return the results of the rules for the manifests that `push` changes. Raises GitError."""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    context = Context(today=today, namespace=settings.namespace)
    if not _has_tree(push.new):
        return Results()  # a tag of a file
    base = push.old if push.old.strip("0") else _merge_base(push.new)
    before = commit_entries(base) if base and _has_tree(base) else {}
    with BlobReader() as blobs:
        tree = GitTree(os.getcwd(), commit_entries(push.new), blobs)
        linter = Linter(
            OnePolicy(policy, settings.policy or ""), context, kustomizations=Kustomizations(tree)
        )
        linter.evaluate(_within_bounds(changed_sources(tree, before, Exclusion(settings.exclude))))
        linter.finish()
    return linter.results


def _has_tree(name: str) -> bool:
    """Return whether the object, or what it points to as a tag, is a commit or a tree."""
    return git_line("cat-file", "-t", f"{name}^{{}}") in {"commit", "tree"}


def _merge_base(new: str) -> str:
    """Return where `new` left the default branch; empty if it has nothing in common with it."""
    try:
        return git_line("merge-base", "HEAD", new)
    except GitError:
        return ""


def _within_bounds(
    inputs: Iterator[Source | SkippedSource | UnreadableSource],
) -> Iterator[Source | SkippedSource | UnreadableSource]:
    """The inputs up to the bounds of one push; beyond them, the rest is not evaluated."""
    characters = 0
    for number, item in enumerate(inputs):
        characters += len(item.text) if isinstance(item, Source) else 0
        if number >= MAX_MANIFESTS or characters > MAX_PUSHED_CHARACTERS:
            why = (
                f"and all after it: a push may change {MAX_MANIFESTS} manifests with "
                f"{MAX_PUSHED_CHARACTERS >> 20} MiB; push in parts"
            )
            yield UnreadableSource(item.name, why)
            return
        yield item
