"""One run of the linter, as the options of a command line say."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from lint.evaluation import Suggest
from lint.file_trees import DISK
from lint.inputs import inputs
from lint.linter import Linter
from lint.policy_file import PolicyChoice
from lint.preview import Preview
from lint.results import Results
from lint.sources import Input, UsageError, may_be_large
from rules.policy import Policy, RuleSet
from rules.profile.context import Context

if TYPE_CHECKING:
    from lint.fix.modes import Mode
    from lint.git.staged import StagedFiles


_FEW = 128  # files


class Run(NamedTuple):
    """What a run found, with the policy that it used."""

    results: Results
    policy: Policy
    today: datetime.date
    previews: list[Preview]


def run(
    options: argparse.Namespace,
    paths: list[str],
    mode: Mode | None = None,
    staged: StagedFiles | None = None,
    suggest: Suggest | None = None,
) -> Run:
    """Evaluate `paths`, or what is `staged` there, and fix it as `mode` says.

    `suggest` finds the edits that fix each finding, if a report wants them.

    Raises UsageError and PolicyError.
    """
    today = datetime.datetime.now(tz=datetime.UTC).date()
    tree = staged.tree if staged else DISK
    choice = PolicyChoice(options.policy, options.profile, tree, isolated=options.isolated)
    policy, policy_file = choice.load()
    linter = Linter(
        policy,
        Context(today=today, namespace=options.namespace),
        rules=_rules(options, policy),
        policy_file=policy_file,
        preview=options.patch,
        fixer=mode.fixer if mode else None,
        tree=tree,
        suggest=suggest,
    )
    if options.render or options.values or options.sets or options.kube_version:
        renderer = import_module("lint.rendering.renderer").start(paths, options)
        renderer.evaluate(linter, _inputs(options, paths, mode))
    elif staged:
        linter.evaluate(staged.sources(paths, options.exclude))
    else:
        given = [*_inputs(options, paths, mode)]
        # What is written needs whole files, and one process: files may be links to each other.
        if mode or options.patch or not _are_many(given):
            linter.evaluate(given)
        else:
            import_module("lint.many_files").evaluate(linter, given, options.jobs)
    linter.finish()
    return Run(linter.results, policy, today, linter.previews)


def _are_many(given: list[Input]) -> bool:
    """Whether it takes longer to evaluate `given` than to start processes, or much memory."""
    if len(given) > _FEW:
        return True
    return any(map(may_be_large, given))


def _inputs(options: argparse.Namespace, paths: list[str], mode: Mode | None) -> Iterator[Input]:
    is_wanted = None
    if options.changed_since:
        changed_since = import_module("lint.git.changed").changed_since
        is_wanted = changed_since(options.changed_since, paths)
    read_stdin = mode.streams.read if mode and mode.streams else None
    return inputs(paths, options.exclude, options.stdin_filename, read_stdin, is_wanted)


def paths_of(options: argparse.Namespace) -> list[str]:
    """The paths that the user names, or what is read without any.

    Raises UsageError if that is standard input and a terminal.
    """
    if options.paths:
        paths: list[str] = options.paths
        return paths
    if options.staged:
        return []
    if options.changed_since:
        return ["."]
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("nothing to lint: give a file or folder, or - for standard input")
    return ["-"]


def _rules(options: argparse.Namespace, policy: Policy) -> RuleSet:
    """The rules of `policy`, with the fixes that the user has chosen."""
    rules = policy.rule_set()
    names, unsafe = options.rules, options.unsafe_fixes
    if not names and not unsafe:
        return rules
    if not (options.fix or options.diff or options.patch):
        option = "--rule" if names else "--unsafe-fixes"
        raise UsageError(f"{option} chooses what to fix: add --fix, --diff or --patch")
    chosen: RuleSet = import_module("lint.fix.selection").select_fixes(rules, names, unsafe=unsafe)
    return chosen
