"""One run of the linter, as its settings say."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from lint.evaluation import FixTask, SuggestEdits
from lint.linter import Linter
from lint.settings import FixSettings, InputSettings, LintSettings
from policies.policy import Policy
from policies.problems import path_pattern_problem
from reports.results import Remark, Results
from rules.engine.rule_set import RuleSet
from rules.profile.context import Context
from sources import STANDARD_INPUT
from sources.kustomization_files import Kustomizations
from sources.paths import Exclusion, inputs
from sources.policy_file import Policies
from sources.sources import DISK, FileTree, Input, InputFile, UsageError, may_be_large

if TYPE_CHECKING:
    from io import BufferedReader

    from lint.fix.output import FixOutput
    from lint.fix.preview import Preview
    from sources.container_files.kinds import ContainerFiles
    from sources.git.changes import ChangedFiles, StagedFiles


_MAX_FILES_IN_ONE_PROCESS = 128  # files
_REPLACED = "--profile replaces the profiles in perPath too: leave it out to lint several clusters"


class LintRun(NamedTuple):
    """The result of a run; `policy_of` returns the policy by which a file was evaluated."""

    results: Results
    policy_of: Callable[[str], Policy]
    today: datetime.date
    previews: list[Preview]


def run_linter(
    settings: LintSettings,
    policies: Policies,
    fix_output: FixOutput | None = None,
    staged: StagedFiles | None = None,
    suggest: SuggestEdits | None = None,
) -> LintRun:
    """Evaluate what `settings` name, or what is `staged` there, and fix it as `fix_output` says.

    `suggest` finds the edits that fix each finding, if a report wants them. Settings and `policies`
    are those of `find_policies`.

    Raises UsageError and PolicyError.
    """
    today = datetime.datetime.now(tz=datetime.UTC).date()
    linter = Linter(
        policies,
        Context(today=today, namespace=settings.inputs.namespace),
        FixTask(
            fixer=fix_output.fixer if fix_output else None,
            suggest=suggest,
            preview=settings.fixes.patch,
        ),
        kustomizations=_kustomizations(settings.inputs, staged),
        wanted_rules=settings.wanted_rules,
    )
    exclude = _exclusion(settings)
    container_files = _container_files(settings.inputs)
    changed = _changed_files(settings.inputs)
    is_wanted_file = changed.is_changed if changed else None
    manifests: Iterator[Input]
    if staged:
        manifests = staged.sources(settings.inputs.paths, exclude)
    else:
        manifests = _inputs(settings.inputs, exclude, fix_output, is_wanted_file)
    if container_files:
        manifests = (item for item in manifests if item.name not in container_files)
    if settings.rendering.is_given:
        _evaluate_rendered(linter, [*manifests], settings, exclude, staged or changed)
    elif staged:
        # They are read twice: first for what they say about other objects.
        linter.gather_inventory(staged.sources(settings.inputs.paths, exclude))
        linter.evaluate(manifests)
    else:
        # What is written needs whole files, and one process: files may be links to each other.
        in_one_process = bool(fix_output or settings.fixes.patch)
        _evaluate_files(linter, [*manifests], settings.inputs.jobs, in_one_process=in_one_process)
    if container_files:
        found = container_files.find_files(settings.inputs.paths, exclude, is_wanted_file)
        _evaluate_container_files(linter, found)
    linter.finish()
    results = linter.results
    results.remarks += (_note("", 0, text) for text in exclude.notes)
    results.remarks += (_note(file, 1, _REPLACED) for file in policies.replaced)
    results.has_ignored = exclude.has_ignored
    return LintRun(
        results=results,
        policy_of=partial(_policy_of_file, linter),
        today=today,
        previews=linter.previews,
    )


def _policy_of_file(linter: Linter, name: str) -> Policy:
    return linter.policy_of(name).policy


def _note(file: str, position: int, text: str) -> Remark:
    return Remark("note", file, position, position, text, is_always_shown=True)


def _kustomizations(settings: InputSettings, staged: StagedFiles | None) -> Kustomizations:
    return Kustomizations(staged.tree) if staged else Kustomizations(DISK, settings.paths)


def _evaluate_rendered(
    linter: Linter,
    files: list[Input],
    settings: LintSettings,
    exclude: Exclusion,
    changes: ChangedFiles | StagedFiles | None,
) -> None:
    """Evaluate charts and kustomizations as they are rendered, and the other `files` as they are.

    With `changes`, only those that have changed are rendered.
    """
    from lint.rendering.renderer import evaluate_renderings  # noqa: PLC0415  # few runs render

    _find_policies_of(files, linter)
    linter.gather_inventory(files)
    evaluate_renderings(linter, files, settings, exclude, changes)


def _evaluate_files(
    linter: Linter, files: list[Input], jobs: int | None, *, in_one_process: bool
) -> None:
    _find_policies_of(files, linter)
    if len(files) > 1:
        linter.gather_inventory(files)
    if in_one_process or not _need_processes(files):
        linter.evaluate(files)
        return
    from lint.processes import evaluate_many  # noqa: PLC0415  # few runs have many files

    evaluate_many(linter, files, jobs)


def _evaluate_container_files(linter: Linter, files: Iterable[InputFile]) -> None:
    from lint.container_file_rules import evaluate_container_files  # noqa: PLC0415  # few runs want it

    evaluate_container_files(linter, files)


def _find_policies_of(files: list[Input], linter: Linter) -> None:
    """Find every policy before anything is evaluated, or fixed. Raises PolicyError."""
    for item in files:
        linter.policy_of(item.name)


def find_policies(settings: LintSettings, tree: FileTree = DISK) -> tuple[Policies, LintSettings]:
    """Return the policies of the run, and the settings completed by the outermost policy.

    That is the outermost one around the first path. Raises PolicyError, and UsageError for fixes
    that do not fit.
    """
    wanted = _wanted_rules(settings.select, settings.ignore)
    choose_rules = _rule_set_chooser(settings.fixes, wanted)
    policies = Policies(settings.policy._replace(tree=tree), choose_rules)
    place = next((path for path in settings.inputs.paths if path != "-"), "")
    completed = settings.completed_by(*policies.lint_options(place))
    return policies, completed._replace(wanted_rules=wanted)


def _need_processes(given: list[Input]) -> bool:
    """Return whether evaluating `given` takes longer than starting processes, or much memory."""
    if len(given) > _MAX_FILES_IN_ONE_PROCESS:
        return True
    return any(map(may_be_large, given))


def _exclusion(settings: LintSettings) -> Exclusion:
    """Return what `--exclude` and Git leave out of the folders that the user names."""
    given, fixes = settings.inputs, settings.fixes
    if given.includes_ignored and (fixes.fix or fixes.diff):
        why = "a fix never writes what Git ignores, unless you name the file"
        raise UsageError(f"{why}: leave --no-gitignore out")
    if not any(map(os.path.isabs, given.paths)):
        for pattern in filter(os.path.isabs, given.exclude):
            raise UsageError(f"--exclude: {path_pattern_problem(pattern)}")
    ignored_paths = None if given.includes_ignored else _ignored_paths
    return Exclusion(given.exclude, ignored_paths, given.policy_exclude)


def _ignored_paths(folder: str) -> frozenset[str]:
    from sources.git.trees import ignored_paths  # noqa: PLC0415  # only folders have such paths

    return ignored_paths(folder)


def _inputs(
    settings: InputSettings,
    exclude: Exclusion,
    fix_output: FixOutput | None,
    is_wanted: Callable[[str], bool] | None,
) -> Iterator[Input]:
    read_stdin = fix_output.streams.read if fix_output and fix_output.streams else None
    return inputs(settings.paths, exclude, settings.stdin_filename, read_stdin, is_wanted)


def _changed_files(settings: InputSettings) -> ChangedFiles | None:
    """Return the files that have changed, if the user wants only those to be linted."""
    if not settings.changed_since:
        return None
    from sources.git.changes import changed_since  # noqa: PLC0415  # few runs need Git

    return changed_since(settings.changed_since, settings.paths)


def _container_files(settings: InputSettings) -> ContainerFiles | None:
    """Return the files that are no manifests, if the user wants some to be linted."""
    if not settings.also:
        return None
    from sources.container_files.kinds import ContainerFiles  # noqa: PLC0415  # few runs want such files

    return ContainerFiles(settings.also)


def with_default_paths(settings: LintSettings) -> LintSettings:
    """Return the settings with the paths that are read if the user names none.

    Raises UsageError if that is standard input and it is a terminal or empty, if standard input
    has a name and is not read, or if something is to be read that is never staged.
    """
    given = settings.inputs
    if given.staged and given.also:
        raise UsageError("--also reads the files of the working tree: leave --staged out")
    if given.staged and "-" in given.paths:
        raise UsageError("--staged does not read standard input: leave - out")
    given = given._replace(paths=given.paths or _default_paths(given))
    if given.stdin_filename != STANDARD_INPUT and "-" not in given.paths:
        raise UsageError("--stdin-filename names standard input: add - to what is linted")
    return settings._replace(inputs=given)


_GIVE_PATH_ADVICE = "give a file or folder, or - for standard input"


def _default_paths(settings: InputSettings) -> tuple[str, ...]:
    if settings.staged:
        return ()
    if settings.changed_since:
        return (".",)
    if sys.stdin.isatty():
        raise UsageError(f"nothing to lint: {_GIVE_PATH_ADVICE}")
    if not cast("BufferedReader", sys.stdin.buffer).peek(1):
        raise UsageError(
            f"nothing to lint: no path, and standard input is empty: {_GIVE_PATH_ADVICE}"
        )
    return ("-",)


def _rule_set_chooser(
    fixes: FixSettings, wanted: frozenset[str] | None
) -> Callable[[Policy], RuleSet]:
    """Return what makes the rule set of a policy: the wanted rules, with the chosen fixes."""
    if not fixes.rules and not fixes.unsafe:
        return partial(_restricted_rule_set, wanted)
    if not fixes.is_given:
        option = "--rule" if fixes.rules else "--unsafe-fixes"
        raise UsageError(f"{option} chooses what to fix: add --fix, --diff or --patch")
    return partial(_rule_set_with_fixes, fixes, wanted)


def _rule_set_with_fixes(
    fixes: FixSettings, wanted: frozenset[str] | None, policy: Policy
) -> RuleSet:
    from lint.fix.fixer import select_fixes  # noqa: PLC0415  # few runs choose fixes

    rules = _restricted_rule_set(wanted, policy)
    return select_fixes(rules, fixes.rules, unsafe=fixes.unsafe)


def _restricted_rule_set(wanted: frozenset[str] | None, policy: Policy) -> RuleSet:
    rules = policy.rule_set()
    return rules if wanted is None else rules.restricted_to(wanted)


def _wanted_rules(select: Sequence[str], ignore: Sequence[str]) -> frozenset[str] | None:
    """Return the names of the rules that the user wants to see, by `--select` and `--ignore`.

    Return None for all rules. Both options have names of rules and of families, with commas between
    them. Raises UsageError for one that does not exist.
    """
    if not select and not ignore:
        return None
    from policies.problems import suggestion_suffix  # noqa: PLC0415  # few runs select rules
    from rules.all_rules import ALL_RULES  # noqa: PLC0415

    families: dict[str, set[str]] = {}
    for rule in ALL_RULES:
        families.setdefault(rule.family, set()).add(rule.name)
        families[rule.name] = {rule.name}

    def named(values: Sequence[str], option: str) -> set[str]:
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
    return frozenset(chosen - named(ignore, "--ignore"))
