"""Evaluate sources by a policy: the linter without its command line and its reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lint.evaluation import (
    DocumentResult,
    EvaluatedDocument,
    Evaluator,
    FixTask,
    inputs_with_failed_rules,
    inputs_with_malformed_fields,
    report_unparsed,
    report_unread_inputs,
)
from lint.remarks import (
    add_gpu_exception_remarks,
    component_remarks,
    exception_remarks,
    key_and_comment_remarks,
    misplaced_comment_remarks,
    misplaced_field_remarks,
    other_file_remarks,
    unread_remarks,
    values_remarks,
)
from lint.suppressions import Suppressions
from reports.findings import RULE_BY_NAME, SuppressedFinding, locate_finding
from reports.owners import Owners
from reports.results import InputNotEvaluated, Results
from rules.base.json_values import Json, as_text
from rules.engine.evaluation import EvaluationResult
from rules.engine.fixing import check
from rules.engine.rule_set import PolicyException, RuleSet
from rules.inventory.inventory import EMPTY_INVENTORY, KINDS, Inventory
from rules.objects.object_ref import group_of
from rules.placement.node_labels import GPU_MEM
from rules.profile.context import Context
from rules.profile.profile import Profile
from sources.kustomization_files import Kustomizations
from sources.manifests import File, UnparsedDocument
from sources.policy_file import FilePolicy, OnePolicy, Policies
from sources.sources import (
    DISK,
    KUSTOMIZATION_FILES,
    Input,
    InputReader,
    SkippedSource,
    Source,
    UnreadableSource,
    has_manifest_texts,
)
from terminal import is_end_of_output

if TYPE_CHECKING:
    from lint.fix.preview import Preview

_KINDS_WITH_TEXTS = ("ConfigMap", "Secret")
_MAX_DEPTH = 4
_MAX_KEPT_CHARACTERS = 4 << 20
# What is read of them takes some twenty times as many bytes.
_MAX_KEPT_DOCUMENT_CHARACTERS = 1 << 20
# One of them is in every file that `manifests_of_other_programs` reads.
_WORDS_OF_OTHER_PROGRAMS = (
    *("k8s:", "k8s ", "k8s\t", "k8s_raw", "openshift_raw"),
    *("podSpec", "pod_spec"),
)
_TOO_DEEP_MESSAGE = (
    f"a manifest in more than {_MAX_DEPTH} texts, such as those of ConfigMaps, one in another"
)
RULE_NAMES = frozenset(RULE_BY_NAME)
_ONLY_REPORT = FixTask()


UsedPolicies: TypeAlias = dict[object, tuple[str, tuple[PolicyException, ...]]]
"""The file and the exceptions of each policy that was used."""


class PartialResults(NamedTuple):
    """The findings in some of the inputs of a run."""

    results: Results
    owners: Owners
    used_exceptions: set[PolicyException]
    used_policies: UsedPolicies


class _CurrentFile:
    """A file that is evaluated, with its policy, its context and the rules for it.

    It may be a text in an object of the file `outer`. `uses_values` says whether a rendering uses
    the values in a file; None if the run renders no chart.
    """

    def __init__(
        self,
        file: File,
        policy: FilePolicy,
        context: Context,
        uses_values: Callable[[str], bool] | None,
        outer: _CurrentFile | None,
    ) -> None:
        self.file = file
        self.policy = policy
        self.context = context
        self.evaluator = Evaluator(policy.rules, context)
        self.uses_values = uses_values
        self.depth: int = outer.depth + 1 if outer else 0
        self.comment_lines: set[int] = outer.comment_lines if outer else set()
        """The lines of comments in objects, also in those that are in texts of this file."""

    @property
    def renders(self) -> bool:
        """Return whether the run renders charts."""
        return self.uses_values is not None


class Linter:
    """One run: its policies, a context, and the results so far.

    `policies` has the policy for each file, with the rules that run. `wanted_rules` names those
    that the user asked for, None for all: the others do not run, so the run says nothing about
    them.
    """

    def __init__(
        self,
        policies: Policies | OnePolicy,
        context: Context,
        fixes: FixTask = _ONLY_REPORT,
        *,
        kustomizations: Kustomizations | None = None,
        wanted_rules: frozenset[str] | None = None,
    ) -> None:
        self.context = context
        self.wanted_rules = wanted_rules
        self.results = Results()
        self.previews: list[Preview] = []
        self._policies = policies
        self._default = policies.find("", "")
        self._used: UsedPolicies = {}
        self._fixes = fixes
        self._used_exceptions: set[PolicyException] = set()
        self._kustomizations = kustomizations or Kustomizations(DISK)
        self._owners = Owners()
        self._inventories: dict[object, Inventory] = {}
        # A fix of one file may change another, if that is a link to it.
        kept = 0 if fixes.fixer else _MAX_KEPT_CHARACTERS
        self._input_reader = InputReader(kept, _MAX_KEPT_DOCUMENT_CHARACTERS)

    def policy_of(self, name: str, *, is_folder: bool = False) -> FilePolicy:
        """Return the policy for the file called `name`, or for what is rendered from that folder.

        Raises PolicyError.
        """
        return self._policies.find(name if is_folder else os.path.dirname(name), name)

    def use_policy_of(self, name: str, *, is_folder: bool = False) -> FilePolicy:
        """Return the policy of `policy_of`, and name it in the results. Raises PolicyError."""
        policy = self.policy_of(name, is_folder=is_folder)
        self._used.setdefault(policy.equality_key, (policy.file, policy.policy.exceptions))
        return policy

    def gather_inventory(self, inputs: Iterable[Input]) -> None:
        """Let rules know of all objects in `inputs`, not only of those in the same text.

        Files of one cluster are known to its files alone; files that may be for any, to all.
        """
        clusters: dict[object, list[Input]] = {}
        profiles: dict[object, Profile] = {}
        for given in inputs:
            policy = self.policy_of(given.name)
            clusters.setdefault(policy.cluster, []).append(given)
            profiles.setdefault(policy.cluster, policy.rules.profile)
        for_all = clusters.get((), [])
        for cluster, own in clusters.items():
            files = [*for_all, *own] if cluster else own
            self._inventories[cluster] = self._inventory_of(files, profiles[cluster])

    def evaluate(
        self, inputs: Iterable[Input], uses_values: Callable[[str], bool] | None = None
    ) -> None:
        """Evaluate every input and add the findings to the results.

        `uses_values` says whether a rendering uses the values in a file; None if the run renders no
        chart.
        """
        for given in inputs:
            item = self._input_reader.read(given)
            if isinstance(item, Source):
                if item.is_rendering:
                    self.results.renderings += 1
                elif item.part is None or item.part.is_first:
                    self.results.file_names.append(item.name)
                self._evaluate_file(File(item), uses_values)
                self.results.leave_out_further_findings()
            elif isinstance(item, UnreadableSource):
                self._report_unread(item.name, item.line, item.column, item.why)
            elif item.why:
                self.results.skipped.append(item)

    def evaluate_embedded(self, sources: Iterable[Source]) -> None:
        """Evaluate the manifests in a file that is none itself."""
        for source in sources:
            self._evaluate_file(File(source))

    def check_object(self, manifest: Json, rules: RuleSet) -> EvaluationResult:
        """Return what `rules` find in an object that is in no file. The results count it."""
        result = check(manifest, rules, self.context)
        self.results.objects += 1
        self.results.pods += len(result.pod_paths)
        self.results.excepted += len(result.excepted)
        self._used_exceptions |= result.used_exceptions
        return result

    def take_results(self) -> PartialResults:
        """Return what has been found since the last call, and forget it."""
        taken = PartialResults(
            results=self.results,
            owners=self._owners,
            used_exceptions=self._used_exceptions,
            used_policies=self._used,
        )
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
        default = (self._default.file, self._default.policy.exceptions)
        used = dict.fromkeys(self._used.values()) or {default: None}
        self.results.policy = ", ".join(sorted({file for file, _ in used if file}))
        reported: set[PolicyException] = set()  # which a policy may have from another one
        for file, exceptions in used if self.wanted_rules is None else ():
            self.results.remarks += exception_remarks(
                exceptions, file, self._used_exceptions, self.context.today, reported
            )

    def _evaluate_file(
        self,
        file: File,
        uses_values: Callable[[str], bool] | None = None,
        outer: _CurrentFile | None = None,
    ) -> None:
        source = file.source
        place = source.folder if source.is_rendering else source.name
        policy = self.use_policy_of(place, is_folder=source.is_rendering)
        name, context = source.name, self.context
        if policy.namespace and not context.namespace:
            context = context._replace(namespace=policy.namespace)
        if not source.is_rendering:  # whose name is a command, and no path
            if outer is None:
                renders = uses_values is not None
                skipped = self._kustomizations.skipped_files_of(name, renders=renders)
                self.results.skipped.extend(skipped)
            context = self._kustomizations.context_of(name, context)
        try:
            context = context._replace(inventory=self._inventory_for(source, policy))
            current = _CurrentFile(file, policy, context, uses_values, outer)
            self._evaluate_documents(current)
            if not source.is_embedded:
                self._report_values(current)
                self._evaluate_files_of_other_programs(current)
        except Exception as error:  # a bug of ours must not hide the results of other files
            if isinstance(error, OSError) and is_end_of_output(error):
                raise
            why = f"gpuward itself failed here, please report it: {type(error).__name__}: {error}"
            self._report_unread(name, 0, 0, why)

    def _evaluate_documents(self, current: _CurrentFile) -> None:
        source, is_all_read = current.file.source, True
        objects = self.results.objects
        for file, item in self._items(current):
            if isinstance(item, UnparsedDocument):
                is_all_read = False
                report_unparsed(self.results, source, item, renders=current.renders)
            elif isinstance(item, InputNotEvaluated):
                is_all_read = False
                self.results.objects += 1
                self.results.not_evaluated.append(item)
            else:
                self._report(file, item, current)
                self._evaluate_texts(file, item, current)
                starts = (comment.start for comment in item.comments.comments)
                current.comment_lines.update(file.position(start)[0] for start in starts)
                if self._fixes.preview and not source.is_embedded:
                    from lint.fix.preview import add_preview  # noqa: PLC0415  # few runs show patches

                    add_preview(self.previews, self.results, file, item, current.evaluator)
        # Files of other tools may have comments for rules about them.
        if is_all_read and objects < self.results.objects and self._checks_all_comments(source):
            lines = current.comment_lines
            self.results.remarks += misplaced_comment_remarks(current.file, lines)

    def _evaluate_texts(self, file: File, item: EvaluatedDocument, current: _CurrentFile) -> None:
        """Evaluate the manifests in texts of ConfigMaps and Secrets, and in commands of pods."""
        document, pods = item.document, item.result.pod_paths
        objects = [raw for raw, _ in item.objects]
        has_texts = any(as_text(raw.get("kind")) in _KINDS_WITH_TEXTS for raw in objects)
        has_applied = any(has_manifest_texts(group_of(raw)) for raw in objects)
        has_commands = pods and file.may_have_manifest_in_command
        if not (has_texts or has_applied or has_commands):
            return
        from sources import embedded_manifests as embedded  # noqa: PLC0415  # few files need it

        in_object = embedded.manifests_in_object(file, document) if has_texts else ()
        in_fields = embedded.manifests_in_custom_resource(file, document) if has_applied else ()
        in_commands = embedded.manifests_in_commands(file, document, pods) if has_commands else ()
        for source in chain(in_object, in_fields, in_commands):
            if current.depth < _MAX_DEPTH:
                self._evaluate_file(File(source), current.uses_values, outer=current)
            else:
                self._report_unread(source.name, source.lines[0], 1, _TOO_DEEP_MESSAGE)

    def _evaluate_files_of_other_programs(self, current: _CurrentFile) -> None:
        """Evaluate the objects that Ansible and other programs make of a file."""
        source = current.file.source
        if source.is_rendering or not any(w in source.text for w in _WORDS_OF_OTHER_PROGRAMS):
            return
        from sources.embedded_manifests import manifests_of_other_programs  # noqa: PLC0415  # likewise

        for found in manifests_of_other_programs(current.file):
            if isinstance(found, SkippedSource):
                self.results.skipped.append(found)
            else:
                self._evaluate_file(File(found), outer=current)

    def _checks_all_comments(self, source: Source) -> bool:
        """Return whether comments of `source` outside of its objects are for nothing.

        In a kustomization, they work where its rendering is evaluated.
        """
        if source.is_embedded or source.is_rendering or source.part:
            return False
        is_kustomization = os.path.basename(source.name) in KUSTOMIZATION_FILES
        return not is_kustomization and self.wanted_rules is None and self._fixes.fixer is None

    def _inventory_for(self, source: Source, policy: FilePolicy) -> Inventory:
        """Return what is known of other objects when `source` is evaluated.

        A rendering has objects that no file has, with names that other renderings may use as well.
        """
        known = self._inventories.get(policy.cluster)
        if known is None or source.is_rendering:
            has_some = any(word in source.text for word in (*KINDS, GPU_MEM))
            profile = policy.rules.profile
            known = self._inventory_of((source,), profile) if has_some else EMPTY_INVENTORY
        return known.for_unnamed_namespace(source.namespace_stand_in) if known else EMPTY_INVENTORY

    def _inventory_of(self, inputs: Iterable[Input], profile: Profile) -> Inventory:
        from lint.manifest_inventory import gather_inventory  # noqa: PLC0415  # few runs need it

        return gather_inventory(
            inputs,
            results=self.results,
            profile=profile,
            context=self.context,
            kustomizations=self._kustomizations,
            reader=self._input_reader,
        )

    def _items(self, current: _CurrentFile) -> Iterator[tuple[File, DocumentResult]]:
        file, evaluator, fixer = current.file, current.evaluator, self._fixes.fixer
        if fixer and not file.source.is_embedded:
            return fixer.fix_file(file, evaluator, self.results)
        return ((file, item) for item in evaluator.evaluate_file(file))

    def _report(self, file: File, item: EvaluatedDocument, current: _CurrentFile) -> None:
        document, result, results = item.document, item.result, self.results
        context, policy = current.context, current.policy
        for raw, _ in item.objects:
            self._owners.add(raw, context.namespace)
        # Without a policy file it is not known what the cluster allows.
        known = policy.policy if policy.file else None
        add_gpu_exception_remarks(
            results, file, document, item.objects, policy=known, context=context
        )
        results.objects += item.object_count
        self._report_findings(file, item, current.evaluator)
        report_unread_inputs(
            results, file.source, inputs_with_malformed_fields(file, document, result)
        )
        results.not_evaluated += inputs_with_failed_rules(file, document, result)
        comments = item.comments if self.wanted_rules is None else Suppressions([])
        results.remarks += key_and_comment_remarks(file, document, comments, RULE_NAMES)
        results.remarks += misplaced_field_remarks(file, document, result)
        results.remarks += component_remarks(file, document, result)
        results.remarks += unread_remarks(
            file, document, item.objects, result, policy.rules.profile
        )

    def _report_values(self, current: _CurrentFile) -> None:
        """Report what is wrong in the values of a chart, unless a rendering shows it."""
        file, uses_values = current.file, current.uses_values
        if not (uses_values and uses_values(file.source.name)):
            for item in current.evaluator.evaluate_values(file):
                if isinstance(item, InputNotEvaluated):
                    self.results.not_evaluated.append(item)
                else:
                    self._report_findings(file, item, current.evaluator)
        profile = current.policy.rules.profile
        self.results.remarks += values_remarks(file, profile, uses_values)
        self.results.remarks += other_file_remarks(file, profile, uses_values)

    def _report_unread(self, name: str, line: int, column: int, why: str) -> None:
        self.results.not_evaluated.append(InputNotEvaluated(name, line, column, why))

    def _report_findings(self, file: File, item: EvaluatedDocument, evaluator: Evaluator) -> None:
        document, result, results = item.document, item.result, self.results
        results.pods += len(result.pod_paths)
        results.components += result.components
        results.other_objects += result.other_objects
        results.suppressed += result.suppressed
        results.excepted += len(result.excepted)
        self._used_exceptions |= result.used_exceptions
        suggest = self._fixes.suggest
        suggested = suggest(file, evaluator, item) if suggest else ()
        for finding, edits in zip(result.findings, chain(suggested, repeat(())), strict=False):
            located = locate_finding(file, document, finding)
            results.findings.append(located._replace(edits=edits) if edits else located)
        for finding, reason in item.comments.suppressed_findings():
            located = locate_finding(file, document, finding)
            results.suppressed_findings.append(SuppressedFinding(located, reason))
