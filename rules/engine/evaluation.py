"""Run rules over one manifest, one after the other, and collect the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rules.base.caching import cached_property
from rules.base.json_access import as_object
from rules.base.json_values import Json
from rules.base.traits import satisfies
from rules.engine.bounds import STEPS_OF_A_POD, StepLimit, steps_of
from rules.engine.checking import NOTHING, ResultsByRule, check_subject
from rules.engine.exceptions import ExceptionMatcher
from rules.engine.fast_path import pod_from_raw, well_formed_pod
from rules.engine.result import EvaluationResult, RuleFailure, RuleFindings
from rules.engine.rule_set import ActiveRule, RuleSet
from rules.engine.suppression import Suppress
from rules.engine.traits import raw_traits, set_traits, traits_of
from rules.finding import Finding
from rules.gpu.components import is_component, is_mirror
from rules.objects.circumstances import set_circumstances
from rules.objects.kubernetes_object import KubernetesObject
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.traits.surroundings import inventory_traits
from rules.workloads.discovery import find_subjects
from rules.workloads.subjects import MalformedField, Subject


class Evaluation:
    """One manifest with its subjects. `run_rule` adds to `result` what a rule says of them.

    Rules are pure. What a rule has said about a view is therefore stored with the view and used
    again; only exceptions, suppression and superseding are decided anew.
    """

    def __init__(
        self,
        manifest: Json,
        rule_set: RuleSet,
        context: Context,
        suppress: Suppress,
        steps: StepLimit,
    ) -> None:
        self._steps = steps
        self._rule_set = rule_set
        self._request_context = context
        self._suppress = suppress
        self._common_traits = rule_set.profile_traits | inventory_traits(context.inventory)
        self._start(manifest)

    def _start(self, manifest: Json) -> None:
        self.result = EvaluationResult()
        self._superseded: set[tuple[Any, ...]] = set()
        self._exceptions = self._exception_matcher()
        self._subjects: list[tuple[Subject, int, int]] = []
        self._is_alone = False
        self.rules: tuple[tuple[int, ActiveRule], ...] = ()
        """The rules that can concern a subject, with their numbers in the rule set."""
        pod = well_formed_pod(manifest)
        if pod is None:
            self._use(self._find_subjects(manifest))
        else:
            self._start_with_pod(*pod, status=as_object(manifest).get("status"))

    def _start_with_pod(self, spec: Any, metadata: Any, status: Any) -> None:
        profile, self.result.pods = self._rule_set.profile, 1
        traits = raw_traits(spec, metadata, profile)
        all_traits = traits.all | self._common_traits
        if self._rule_set.relevant_rules(all_traits):
            namespace = self._request_context.namespace
            pod = pod_from_raw(spec, metadata, profile, namespace)
            pod.has_status = bool(status)
            if self._should_evaluate(pod):
                set_traits(pod, traits)
                self._use([(pod, all_traits)])

    def _find_subjects(self, manifest: Json) -> list[tuple[Subject, int]]:
        subjects: list[tuple[Subject, int]] = []
        profile, namespace = self._rule_set.profile, self._request_context.namespace
        for subject in find_subjects(manifest, profile, namespace):
            if isinstance(subject, MalformedField):
                self.result.malformed_fields.append(subject)
                continue
            if isinstance(subject, Pod):
                self.result.pods += 1
                self._steps.take(STEPS_OF_A_POD + len(subject.path))
            elif not (isinstance(subject, KubernetesObject) and subject.pods):
                self.result.other_objects += 1
            traits = self._traits_of(subject)
            if self._rule_set.relevant_rules(traits) and self._should_evaluate(subject):
                subjects.append((subject, traits))
        return subjects

    def _traits_of(self, subject: Subject) -> int:
        return traits_of(subject) | self._common_traits

    def _use(self, subjects: list[tuple[Subject, int]]) -> None:
        """Evaluate these subjects, each with its traits."""
        self._subjects = [(subject, traits, steps_of(subject)) for subject, traits in subjects]
        self._is_alone = len(subjects) == 1  # then `rules` are those that concern it
        if subjects:
            traits_of_all = 0
            for _, traits in subjects:
                traits_of_all |= traits
            self.rules = self._rule_set.relevant_rules(traits_of_all)

    def _exception_matcher(self) -> ExceptionMatcher | None:
        """Most policies have no exceptions."""
        if not self._rule_set.exceptions:
            return None
        return ExceptionMatcher(self._rule_set, self._request_context.today)

    @cached_property
    def _context(self) -> Context:
        """The context of rules without options; most evaluations need none."""
        return self._request_context.with_profile(self._rule_set.profile)

    def _should_evaluate(self, subject: Subject) -> bool:
        if not isinstance(subject, Pod):
            return True
        set_circumstances(subject, self._request_context)
        subject.is_component = is_component(subject, self._request_context)
        self.result.components += subject.is_component
        return not (subject.is_component or is_mirror(subject, self._request_context))

    @property
    def by_subject(self) -> list[Mapping[str, RuleFindings]]:
        """What each rule that has run has said about each subject."""
        return [subject.results_by_rule for subject, _, _ in self._subjects]

    def remember(self, by_subject: Sequence[Mapping[str, RuleFindings]]) -> None:
        """Do not run again what an evaluation of the same manifest, as it was, has run."""
        for (subject, _, _), earlier in zip(self._subjects, by_subject, strict=bool(by_subject)):
            subject.results_by_rule = ResultsByRule(earlier)

    def restart(self, manifest: Json, edited_by: str = "") -> None:
        """Start over with `manifest`: the previous one, or what the rule `edited_by` made of it."""
        previous = self.result
        if previous.malformed_fields:  # list indices may have shifted
            self._start(manifest)
            return
        self.result = EvaluationResult()
        self.result.pods, self.result.components = previous.pods, previous.components
        self.result.other_objects = previous.other_objects
        self._superseded = set()
        self._exceptions = self._exception_matcher()
        for subject, _, _ in self._subjects if edited_by else ():
            findings, _ = subject.results_by_rule.get(edited_by, NOTHING)
            subject.refresh(manifest, [e.path for f in findings if f.fixable for e in f.fix.edits])
        self._use([(subject, self._traits_of(subject)) for subject, _, _ in self._subjects])

    def run_rule(self, active: ActiveRule) -> Sequence[Finding]:
        """Run one rule for every subject; the findings, which are also added to `result`."""
        reported: list[Finding] = []
        failure, name = "", active.rule.name
        for subject, traits, steps in self._subjects:
            results = subject.results_by_rule
            known = results.get(name)
            if known is None:
                known = NOTHING
                if self._is_alone or satisfies(traits, active.needs):
                    known = check_subject(active, subject, self._context, self._steps, steps)
                results[name] = known
            if known is NOTHING:
                continue
            findings, error = known
            own = [f for f in findings if self._is_reported(f, active, subject)]
            if self._exceptions:
                own = [self._exceptions.with_hint(finding, subject) for finding in own]
            reported += own
            failure = failure or error
        if failure:
            self.result.failures.append(RuleFailure(name, failure))
            # The findings of a broken rule are kept, but its fixes cannot be trusted.
            reported = [finding._replace(fixable=False) for finding in reported]
        if reported:
            self.result.findings += reported
        return reported

    def _is_reported(self, finding: Finding, active: ActiveRule, subject: Subject) -> bool:
        """Whether no earlier rule supersedes `finding`, and nothing excepts or suppresses it."""
        spot = (subject.path, finding.container_name, finding.key)
        if self._superseded and (finding.rule, *spot) in self._superseded:
            return False
        exception = self._exceptions.find(finding, subject) if self._exceptions else None
        if exception is not None:
            self.result.excepted.append(finding.rule)
            self.result.used_exceptions.add(exception)
        elif self._suppress(finding, active):
            self.result.suppressed += 1
            return False  # unlike an exception, a comment does not supersede other rules
        if active.rule.supersedes:
            self._superseded.update((other, *spot) for other in active.rule.supersedes)
        return exception is None
