"""One run of the linter, as the options of a command line say."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lint.evaluation import SuggestEdits
from lint.linter import Linter
from lint.preview import Preview
from policies.policy import Policy
from policies.problems import path_pattern_problem
from reports.results import Remark, Results
from rules.engine.rule_set import RuleSet
from rules.profile.context import Context
from sources.paths import Exclusion, inputs
from sources.policy_file import Policies, PolicyChoice
from sources.sources import DISK, STANDARD_INPUT, FileTree, Input, UsageError, may_be_large

if TYPE_CHECKING:
    from io import BufferedReader

    from lint.fix.output import FixOutput
    from sources.container_files import ContainerFiles
    from sources.git.changes import ChangedFiles, StagedFiles


_MAX_FILES_IN_ONE_PROCESS = 128  # files
_REPLACED = "--profile replaces the profiles in perPath too: leave it out to lint several clusters"


class LintRun(NamedTuple):
    """What a run found; `policy_of` says by which policy a file was evaluated.

    `is_wanted_rule` says which rules were evaluated; None for all.
    """

    results: Results
    policy_of: Callable[[str], Policy]
    today: datetime.date
    previews: list[Preview]
    is_wanted_rule: Callable[[str], bool] | None = None


def run_linter(
    options: argparse.Namespace,
    paths: list[str],
    fix_output: FixOutput | None = None,
    staged: StagedFiles | None = None,
    suggest: SuggestEdits | None = None,
    policies: Policies | None = None,
) -> LintRun:
    """Evaluate `paths`, or what is `staged` there, and fix it as `fix_output` says.

    `suggest` finds the edits that fix each finding, if a report wants them. `policies` are those
    of `find_policies`, if that was called already.

    Raises UsageError and PolicyError.
    """
    today = datetime.datetime.now(tz=datetime.UTC).date()
    tree = staged.tree if staged else DISK
    policies = policies or find_policies(options, paths, tree)
    policy, policy_file, *_ = policies.find("", "")
    wanted = wanted_rules(options.select, options.ignore)
    select = _rule_set_chooser(options, wanted)
    linter = Linter(
        policy,
        Context(today=today, namespace=options.namespace),
        rules=select(policy),
        policy_file=policy_file,
        preview=options.patch,
        fixer=fix_output.fixer if fix_output else None,
        tree=tree,
        suggest=suggest,
        policies=policies,
        select=select,
        wanted=wanted,
    )
    if not staged:
        linter.set_linted_paths(paths)
    exclude = _exclusion(options)
    others = _other_files(options)
    changed = _changed_files(options, paths)
    is_wanted = changed.is_changed if changed else None
    given: Iterator[Input]
    if staged:
        given = staged.sources(paths, exclude)
    else:
        given = _inputs(options, paths, exclude, fix_output, is_wanted)
    if others:
        given = (item for item in given if item.name not in others)
    if options.render or options.values or options.sets or options.kube_version:
        files = [*given]
        _load_policies(policies, files)
        linter.gather_inventory(files)
        from lint.rendering.renderer import evaluate_renderings  # noqa: PLC0415  # few runs render

        evaluate_renderings(linter, files, paths, exclude, options, staged or changed)
    elif staged:
        linter.gather_inventory(staged.sources(paths, exclude))
        linter.evaluate(given)
    else:
        files = [*given]
        _load_policies(policies, files)
        if len(files) > 1:
            linter.gather_inventory(files)
        # What is written needs whole files, and one process: files may be links to each other.
        if fix_output or options.patch or not _need_processes(files):
            linter.evaluate(files)
        else:
            from lint.processes import evaluate_many  # noqa: PLC0415  # few runs have many files

            evaluate_many(linter, files, options.jobs)
    if others:
        from lint.container_file_rules import (  # noqa: PLC0415  # few runs want such files
            evaluate_container_files,
        )

        evaluate_container_files(linter, others.find_files(paths, exclude, is_wanted))
    linter.finish()
    linter.results.remarks += (
        Remark("note", "", 0, 0, text, is_always_shown=True) for text in exclude.notes
    )
    linter.results.remarks += (
        Remark("note", file, 1, 1, _REPLACED, is_always_shown=True) for file in policies.replaced
    )
    linter.results.has_ignored = exclude.has_ignored
    return LintRun(linter.results, linter.policy_of_file, today, linter.previews, wanted)


def find_policies(options: argparse.Namespace, paths: list[str], tree: FileTree = DISK) -> Policies:
    """The policies of the run; `options` get what the outermost one says about the whole run.

    Raises PolicyError.
    """
    choice = PolicyChoice(options.policy, options.profile, tree, isolated=options.isolated)
    policies = Policies(choice)
    apply_policy_options(options, policies, paths)
    return policies


def _load_policies(policies: Policies, files: list[Input]) -> None:
    """Find every policy before anything is evaluated, or fixed. Raises PolicyError."""
    for item in files:
        policies.find(os.path.dirname(item.name), item.name)


def _need_processes(given: list[Input]) -> bool:
    """Whether it takes longer to evaluate `given` than to start processes, or much memory."""
    if len(given) > _MAX_FILES_IN_ONE_PROCESS:
        return True
    return any(map(may_be_large, given))


def _exclusion(options: argparse.Namespace) -> Exclusion:
    """What `--exclude` and Git leave out of the folders that the user names."""
    if options.no_gitignore and (options.fix or options.diff):
        why = "a fix never writes what Git ignores, unless you name the file"
        raise UsageError(f"{why}: leave --no-gitignore out")
    if not any(map(os.path.isabs, options.paths)):
        for pattern in filter(os.path.isabs, options.exclude):
            raise UsageError(f"--exclude: {path_pattern_problem(pattern)}")
    ignored_paths = None if options.no_gitignore else _ignored_paths
    return Exclusion(options.exclude, ignored_paths, options.policy_exclude)


def _ignored_paths(folder: str) -> frozenset[str]:
    from sources.git.trees import ignored_paths  # noqa: PLC0415  # only folders have such paths

    return ignored_paths(folder)


def _inputs(
    options: argparse.Namespace,
    paths: list[str],
    exclude: Exclusion,
    fix_output: FixOutput | None,
    is_wanted: Callable[[str], bool] | None,
) -> Iterator[Input]:
    read_stdin = fix_output.streams.read if fix_output and fix_output.streams else None
    return inputs(paths, exclude, options.stdin_filename, read_stdin, is_wanted)


def _changed_files(options: argparse.Namespace, paths: list[str]) -> ChangedFiles | None:
    """The files that have changed, if the user wants only those to be linted."""
    if not options.changed_since:
        return None
    from sources.git.changes import changed_since  # noqa: PLC0415  # few runs need Git

    return changed_since(options.changed_since, paths)


def _other_files(options: argparse.Namespace) -> ContainerFiles | None:
    """The files that are no manifests, if the user wants some to be linted."""
    if not options.also:
        return None
    if options.staged:
        raise UsageError("--also reads the files of the working tree: leave --staged out")
    from sources.container_files import ContainerFiles  # noqa: PLC0415  # few runs want such files

    return ContainerFiles(options.also)


def paths_to_lint(options: argparse.Namespace) -> list[str]:
    """The paths that the user names, or what is read without any.

    Raises UsageError if that is standard input and it is a terminal or empty, or if standard input
    has a name and is not read.
    """
    paths = _paths_to_lint(options)
    if options.stdin_filename != STANDARD_INPUT and "-" not in paths:
        raise UsageError("--stdin-filename names standard input: add - to what is linted")
    return paths


_GIVE_PATH_ADVICE = "give a file or folder, or - for standard input"


def _paths_to_lint(options: argparse.Namespace) -> list[str]:
    if options.paths:
        paths: list[str] = options.paths
        return paths
    if options.staged:
        return []
    if options.changed_since:
        return ["."]
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(f"nothing to lint: {_GIVE_PATH_ADVICE}")
    if not cast("BufferedReader", sys.stdin.buffer).peek(1):
        raise UsageError(
            f"nothing to lint: no path, and standard input is empty: {_GIVE_PATH_ADVICE}"
        )
    return ["-"]


def _rule_set_chooser(
    options: argparse.Namespace, is_wanted_rule: Callable[[str], bool] | None
) -> Callable[[Policy], RuleSet]:
    """Makes the rule set of a policy: the wanted rules, with the fixes that the user has chosen."""
    names, unsafe = options.rules, options.unsafe_fixes
    if not names and not unsafe:
        return (
            Policy.rule_set
            if is_wanted_rule is None
            else partial(_restricted_rule_set, is_wanted_rule)
        )
    if not (options.fix or options.diff or options.patch):
        option = "--rule" if names else "--unsafe-fixes"
        raise UsageError(f"{option} chooses what to fix: add --fix, --diff or --patch")
    from lint.fix.fixer import select_fixes  # noqa: PLC0415  # few runs choose fixes

    return partial(_rule_set_with_fixes, select_fixes, names, is_wanted_rule, unsafe=unsafe)


def _rule_set_with_fixes(
    select_fixes: Callable[..., RuleSet],
    names: list[str],
    is_wanted_rule: Callable[[str], bool] | None,
    policy: Policy,
    *,
    unsafe: bool,
) -> RuleSet:
    return select_fixes(restrict_rules(policy.rule_set(), is_wanted_rule), names, unsafe=unsafe)


def _restricted_rule_set(is_wanted_rule: Callable[[str], bool], policy: Policy) -> RuleSet:
    return restrict_rules(policy.rule_set(), is_wanted_rule)


# The options that no command line may leave to a file if it fixes: rendered text is in no file.
_OPTION_NOT_FOR_FIXES = "render"


def apply_policy_options(
    options: argparse.Namespace, policies: Policies, paths: Iterable[str]
) -> None:
    """Complete `options` by what the policy says that is outermost around the first of `paths`.

    What the command line says wins; files to leave out are added. Raises PolicyError.
    """
    place = next((path for path in paths if path != "-"), "")
    lint, folder = policies.lint_options(place)
    options.policy_exclude = (folder, tuple(lint.get("exclude", ())))
    if options.baseline is None and "baseline" in lint:
        options.baseline = os.path.relpath(os.path.join(folder, lint["baseline"]))
    if getattr(options, "fail_on", "") is None:
        options.fail_on = lint.get("failOn", "error")
    is_fixing = options.fix or options.diff
    if options.render is None:
        options.render = bool(lint.get("render")) and not is_fixing and os.name == "posix"
    if not options.also and not options.staged:
        options.also = ",".join(lint.get("also", ()))
    options.require_input = options.require_input or bool(lint.get("requireInput"))


def wanted_rules(select: list[str], ignore: list[str]) -> Callable[[str], bool] | None:
    """Which rules the user wants to see, by `--select` and `--ignore`; None for all.

    Both have names of rules and of families, with commas between them. Raises UsageError for one
    that does not exist.
    """
    if not select and not ignore:
        return None
    from policies.problems import suggestion_suffix  # noqa: PLC0415  # few runs select rules
    from rules.all_rules import ALL_RULES  # noqa: PLC0415

    families: dict[str, set[str]] = {}
    for rule in ALL_RULES:
        families.setdefault(rule.family, set()).add(rule.name)
        families[rule.name] = {rule.name}

    def named(values: list[str], option: str) -> set[str]:
        words = [word.strip() for value in values for word in value.split(",")]
        for word in words:
            if word not in families:
                hint = (
                    suggestion_suffix(word, families)
                    or "; gpuward rules lists all rules and families"
                )
                raise UsageError(f"{option}: there is no rule or family {word!r}{hint}")
        return set().union(*(families[word] for word in words))

    chosen = named(select, "--select") if select else set().union(*families.values())
    return (chosen - named(ignore, "--ignore")).__contains__


def restrict_rules(rules: RuleSet, wanted: Callable[[str], bool] | None) -> RuleSet:
    """`rules` without those that the user does not want."""
    if wanted is None:
        return rules
    kept: Any = (active for active in rules.rules if wanted(active.rule.name))
    return rules._replace(rules=tuple(kept))
