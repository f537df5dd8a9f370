"""Evaluate sources by a policy: the linter without its command line and its reports."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from kubeyaml import Document
from lint.evaluation import DocumentResult, EvaluatedDocument, Evaluator, FilePolicy, SuggestEdits
from lint.remarks import (
    add_gpu_exception_remarks,
    component_remarks,
    exception_remarks,
    key_and_comment_remarks,
    misplaced_comment_remarks,
    unread_remarks,
    values_remarks,
)
from lint.suppressions import Suppressions
from policies.policy import Policy
from reports.findings import RULE_BY_NAME, SuppressedFinding, locate_finding
from reports.owners import Owners
from reports.results import (
    InputNotEvaluated,
    Results,
    inputs_with_failed_rules,
    inputs_with_malformed_fields,
    report_unparsed,
    report_unread_inputs,
)
from rules.base.json_values import Json, as_object, as_text
from rules.engine.evaluation import EvaluationResult
from rules.engine.fixing import check
from rules.engine.rule_set import PolicyException, RuleSet
from rules.inventory.inventory import EMPTY_INVENTORY, KINDS, Inventory
from rules.placement.node_labels import GPU_MEM
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.workloads.discovery import flatten_lists
from sources.kustomization_files import Kustomizations
from sources.manifests import File, UnparsedDocument
from sources.policy_file import FoundPolicy, Policies
from sources.sources import (
    DISK,
    KUSTOMIZATION_FILES,
    FileTree,
    Input,
    InputFile,
    Source,
    StandardInput,
    UnreadableSource,
)
from terminal import is_end_of_output

if TYPE_CHECKING:
    from lint.preview import Preview

_KINDS_WITH_TEXTS = ("ConfigMap", "Secret")
_MAX_DEPTH = 4
_TOO_DEEP_MESSAGE = (
    f"a manifest in more than {_MAX_DEPTH} ConfigMaps, each in a text of another one"
)
RULE_NAMES = frozenset(RULE_BY_NAME)


def reduce_garbage_collection() -> None:
    """Collect garbage rarely: most of the many objects of a run live to its end."""
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)


class FileFixer(Protocol):
    """Fixes a file, and yields what remains, with the file as it is now: `lint.fix.fixer`."""

    def fix_file(
        self, file: File, evaluator: Evaluator, results: Results
    ) -> Iterator[tuple[File, DocumentResult]]:
        """The documents of `file` after their fixes."""


UsedPolicies: TypeAlias = dict[object, tuple[str, tuple[PolicyException, ...]]]
"""The file and the exceptions of each policy that was used."""


class PartialResults(NamedTuple):
    """What was found in some of the inputs of a run."""

    results: Results
    owners: Owners
    used_exceptions: set[PolicyException]
    used_policies: UsedPolicies


class Linter:
    """One run: a policy, a context, and the results so far.

    `fixer` writes fixes into the files or shows them; `preview` collects JSON Patches; `suggest`
    finds the edits for each finding, if a report wants them. `rules` are those of the policy,
    unless the user has chosen which of them may fix. `tree` has the files.

    `policies` finds the policy for each file, and `select` its rules. Without it, `policy` is for
    every file; it is always for what is in no file. `wanted` are the rules that the user asked
    for, if not for all: the others do not run, so the run says nothing about them.
    """

    def __init__(
        self,
        policy: Policy,
        context: Context,
        *,
        rules: RuleSet | None = None,
        policy_file: str = "",
        preview: bool = False,
        fixer: FileFixer | None = None,
        tree: FileTree = DISK,
        suggest: SuggestEdits | None = None,
        policies: Policies | None = None,
        select: Callable[[Policy], RuleSet] = Policy.rule_set,
        wanted: Callable[[str], bool] | None = None,
    ) -> None:
        found = FoundPolicy(policy, policy_file)
        self._default = FilePolicy(found, rules or policy.rule_set())
        self._current = self._default
        self._used: UsedPolicies = {}
        self._known: dict[object, FilePolicy] = {}
        self._policies, self._select = policies, select
        self.wanted = wanted
        self.context = context
        self.preview = preview
        self.results = Results()
        self.previews: list[Preview] = []
        self._fixer, self._suggest = fixer, suggest
        self._used_exceptions: set[PolicyException] = set()
        self._kustomizations, self._owners = Kustomizations(tree), Owners()
        self._inventories: dict[object, Inventory] = {}
        self._depth = 0  # of texts in the texts of objects
        self._comment_lines: set[int] = set()  # in objects of the file that is being evaluated
        self.uses_values: Callable[[str], bool] | None = None
        """whether a rendering uses the values in a file, if charts are rendered"""

    def set_linted_paths(self, paths: Iterable[str]) -> None:
        """Let the linter know that the run reads all files at `paths`, if none is a glob."""
        names = [path for path in paths if path != "-"]
        if all(map(os.path.lexists, names)):
            self._kustomizations.linted_paths = tuple(map(os.path.realpath, names))

    @property
    def policy(self) -> Policy:
        """The policy for the file that is being evaluated."""
        return self._current.found.policy

    @property
    def _rules(self) -> RuleSet:
        return self._current.rules

    def use_policy_of(self, name: str, *, is_folder: bool = False) -> FilePolicy:
        """Take the policy of `policy_of` for what is evaluated from now on; the same policy.

        Raises PolicyError.
        """
        self._current = current = self.policy_of(name, is_folder=is_folder)
        found = current.found
        self._used.setdefault(found.equality_key, (found.file, found.policy.exceptions))
        return current

    def policy_of(self, name: str, *, is_folder: bool = False) -> FilePolicy:
        """The policy for the file called `name`, or for what is rendered from that folder.

        Raises PolicyError.
        """
        if self._policies is None:
            return self._default
        found = self._policies.find(name if is_folder else os.path.dirname(name), name)
        known = self._known.get(found.equality_key)
        if known is None:
            default = self._default
            is_known = found.policy is default.found.policy  # and its rules take time to choose
            rules = default.rules if is_known else self._select(found.policy)
            known = FilePolicy(found, rules)
            self._known[found.equality_key] = known
        return known

    def policy_of_file(self, name: str) -> Policy:
        """The policy for the file called `name`. Raises PolicyError."""
        return self.policy_of(name).found.policy

    def gather_inventory(self, inputs: Iterable[Input]) -> None:
        """Let rules know of all objects in `inputs`, not only of those in the same text.

        Files of one cluster are known to its files alone; files that may be for any, to all.
        """
        clusters: dict[object, list[Input]] = {}
        profiles: dict[object, Profile] = {}
        for given in inputs:
            policy = self.policy_of(given.name)
            clusters.setdefault(policy.found.cluster, []).append(given)
            profiles.setdefault(policy.found.cluster, policy.rules.profile)
        for_all = clusters.get((), [])
        for cluster, own in clusters.items():
            files = [*for_all, *own] if cluster else own
            self._inventories[cluster] = self._inventory_of(files, profiles[cluster])

    def evaluate(self, inputs: Iterable[Input]) -> None:
        """Evaluate every input and add the findings to the results."""
        for given in inputs:
            item = given.read() if isinstance(given, InputFile | StandardInput) else given
            if isinstance(item, Source):
                if item.is_rendering:
                    self.results.renderings += 1
                elif item.part is None or item.part.is_first:
                    self.results.file_names.append(item.name)
                self._evaluate_file(File(item))
                self.results.leave_out_further_findings()
            elif isinstance(item, UnreadableSource):
                where = (item.name, item.line, item.column)
                self.results.not_evaluated.append(InputNotEvaluated(*where, item.why))
            elif item.why:
                self.results.skipped.append(item)

    def evaluate_embedded(self, sources: Iterable[Source]) -> None:
        """Evaluate the manifests in a file that is none itself."""
        for source in sources:
            self._evaluate_file(File(source))

    def check_object(self, manifest: Json) -> EvaluationResult:
        """What is wrong with an object that is in no file. The results count it."""
        result = check(manifest, self._rules, self.context)
        self.results.objects += 1
        self.results.pods += len(result.pod_paths)
        self.results.excepted += len(result.excepted)
        self._used_exceptions |= result.used_exceptions
        return result

    def take_results(self) -> PartialResults:
        """What has been found since the last call; the linter forgets it."""
        taken = PartialResults(self.results, self._owners, self._used_exceptions, self._used)
        self.results, self._owners = Results(), Owners()
        self._used_exceptions, self._used = set(), {}
        return taken

    def add_results(self, partial: PartialResults) -> None:
        """Add what another linter of the same run has found."""
        self.results.add(partial.results)
        self._owners.update(partial.owners)
        self._used_exceptions |= partial.used_exceptions
        self._used = {**partial.used_policies, **self._used}

    def finish(self) -> None:
        """Merge what pods of one owner share; report exceptions that expired or had no effect."""
        self.results.findings = self._owners.merge(self.results.findings)
        default = (self._default.found.file, self._default.found.policy.exceptions)
        used = dict.fromkeys(self._used.values()) or {default: None}
        self.results.policy = ", ".join(sorted({file for file, _ in used if file}))
        reported: set[PolicyException] = set()  # which a policy may have from another one
        for file, exceptions in used if self.wanted is None else ():
            self.results.remarks += exception_remarks(
                exceptions, file, self._used_exceptions, self.context.today, reported
            )

    def _evaluate_file(self, file: File) -> None:
        source = file.source
        place = source.folder if source.is_rendering else source.name
        namespace = self.use_policy_of(place, is_folder=source.is_rendering).found.namespace
        name, context = source.name, self.context
        if namespace and not context.namespace:
            context = context._replace(namespace=namespace)
        if not file.source.is_rendering:  # whose name is a command, and no path
            renders = self.uses_values is not None
            if not self._depth:
                skipped = self._kustomizations.skipped_files_of(name, renders=renders)
                self.results.skipped.extend(skipped)
            context = self._kustomizations.context_of(name, context)
        try:
            context = context._replace(inventory=self._inventory_for(file.source))
            evaluator = Evaluator(self._rules, context)
            self._evaluate_documents(file, context, evaluator)
            if not source.is_embedded:
                self._report_values(file, evaluator)
        except Exception as error:  # a bug of ours must not hide the results of other files
            if isinstance(error, OSError) and is_end_of_output(error):
                raise
            why = f"gpuward itself failed here, please report it: {type(error).__name__}: {error}"
            self.results.not_evaluated.append(InputNotEvaluated(name, 0, 0, why))

    def _evaluate_documents(self, file: File, context: Context, evaluator: Evaluator) -> None:
        source, is_all_read = file.source, True
        if not self._depth:
            self._comment_lines = set()
        objects = self.results.objects
        for current, item in self._items(file, evaluator):
            if isinstance(item, UnparsedDocument):
                is_all_read = False
                renders = self.uses_values is not None
                report_unparsed(self.results, source, item, renders=renders)
            elif isinstance(item, InputNotEvaluated):
                is_all_read = False
                self.results.objects += 1
                self.results.not_evaluated.append(item)
            else:
                self._report(current, item, context, evaluator)
                self._evaluate_texts(current, item.document)
                starts = (comment.start for comment in item.comments.comments)
                self._comment_lines.update(current.position(start)[0] for start in starts)
                if self.preview and not source.is_embedded:
                    from lint.preview import add_preview  # noqa: PLC0415  # few runs show patches

                    add_preview(self.previews, self.results, current, item, evaluator)
        # Files of other tools may have comments for rules about them.
        if is_all_read and objects < self.results.objects and self._checks_all_comments(source):
            self.results.remarks += misplaced_comment_remarks(file, self._comment_lines)

    def _evaluate_texts(self, file: File, document: Document) -> None:
        """Evaluate the manifests in the texts of ConfigMaps and Secrets in a document."""
        objects = (raw for raw, _ in flatten_lists(as_object(document.value), ()))
        if not any(as_text(raw.get("kind")) in _KINDS_WITH_TEXTS for raw in objects):
            return
        from sources.embedded_manifests import manifests_in_object  # noqa: PLC0415  # few files need it

        self._depth += 1
        try:
            for source in manifests_in_object(file, document):
                if self._depth <= _MAX_DEPTH:
                    self._evaluate_file(File(source))
                else:
                    unread = InputNotEvaluated(source.name, source.lines[0], 1, _TOO_DEEP_MESSAGE)
                    self.results.not_evaluated.append(unread)
        finally:
            self._depth -= 1

    def _checks_all_comments(self, source: Source) -> bool:
        """Whether comments of `source` outside of its objects are for nothing.

        In a kustomization, they work where its rendering is evaluated.
        """
        is_whole = not (source.is_embedded or source.is_rendering or source.part)
        is_kustomization = os.path.basename(source.name) in KUSTOMIZATION_FILES
        return is_whole and not is_kustomization and self.wanted is None and self._fixer is None

    def _inventory_for(self, source: Source) -> Inventory:
        """What is known of other objects when `source` is evaluated.

        A rendering has objects that no file has, with names that other renderings may use as well.
        """
        known = self._inventories.get(self._current.found.cluster)
        if known is None or source.is_rendering:
            has_some = any(word in source.text for word in (*KINDS, GPU_MEM))
            known = (
                self._inventory_of((source,), self._rules.profile) if has_some else EMPTY_INVENTORY
            )
        return known.for_unnamed_namespace(source.namespace_stand_in) if known else EMPTY_INVENTORY

    def _inventory_of(self, inputs: Iterable[Input], profile: Profile) -> Inventory:
        from lint.manifest_inventory import gather_inventory  # noqa: PLC0415  # few runs need it

        return gather_inventory(inputs, self.results, profile, self.context, self._kustomizations)

    def _items(self, file: File, evaluator: Evaluator) -> Iterator[tuple[File, DocumentResult]]:
        if self._fixer and not file.source.is_embedded:
            return self._fixer.fix_file(file, evaluator, self.results)
        return ((file, item) for item in evaluator.evaluate_file(file))

    def _report(
        self, file: File, item: EvaluatedDocument, context: Context, evaluator: Evaluator
    ) -> None:
        document, result, results = item.document, item.result, self.results
        listed = list(flatten_lists(as_object(document.value), ()))
        for raw, _ in listed:
            self._owners.add(raw, context.namespace)
        # Without a policy file it is not known what the cluster allows.
        known = self.policy if self._current.found.file else None
        add_gpu_exception_remarks(results, file, document, listed, policy=known, context=context)
        results.objects += item.object_count
        self._report_findings(file, item, evaluator)
        report_unread_inputs(
            results, file.source, inputs_with_malformed_fields(file, document, result)
        )
        results.not_evaluated += inputs_with_failed_rules(file, document, result)
        comments = item.comments if self.wanted is None else Suppressions([])
        results.remarks += key_and_comment_remarks(file, document, comments, RULE_NAMES)
        results.remarks += component_remarks(file, document, result)
        results.remarks += unread_remarks(file, document, result, self._rules.profile)

    def _report_values(self, file: File, evaluator: Evaluator) -> None:
        """Report what is wrong in the values of a chart, unless a rendering shows it."""
        if not (self.uses_values and self.uses_values(file.source.name)):
            for item in evaluator.evaluate_values(file):
                if isinstance(item, InputNotEvaluated):
                    self.results.not_evaluated.append(item)
                else:
                    self._report_findings(file, item, evaluator)
        self.results.remarks += values_remarks(file, self._rules.profile, self.uses_values)

    def _report_findings(self, file: File, item: EvaluatedDocument, evaluator: Evaluator) -> None:
        document, result, results = item.document, item.result, self.results
        results.pods += len(result.pod_paths)
        results.components += result.components
        results.other_objects += result.other_objects
        results.suppressed += result.suppressed
        results.excepted += len(result.excepted)
        self._used_exceptions |= result.used_exceptions
        suggested = self._suggest(file, evaluator, item) if self._suggest else ()
        for finding, edits in zip(result.findings, chain(suggested, repeat(())), strict=False):
            located = locate_finding(file, document, finding)
            results.findings.append(located._replace(edits=edits) if edits else located)
        for finding, reason in item.comments.suppressed_findings():
            located = locate_finding(file, document, finding)
            results.suppressed_findings.append(SuppressedFinding(located, reason))
