"""Run rules over one manifest, one after the other, and collect the result."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from rules.base.caching import cached_property
from rules.base.json_values import Json, Path, as_object, as_objects
from rules.base.traits import EVERY_POD, satisfies
from rules.engine.bounds import (
    STEPS_OF_A_POD,
    StepLimit,
    TooManyStepsError,
    exceeds_bounds,
    steps_of,
    steps_of_finding,
)
from rules.engine.exceptions import ExceptionMatcher, Suppress
from rules.engine.rule_set import ActiveRule, PolicyException, RuleSet
from rules.finding import Finding
from rules.gpu.claims import profile_with_classes
from rules.gpu.components import advice_for_agents, component_of, is_mirror
from rules.objects.kubernetes_objects import KubernetesObject
from rules.objects.object_ref import object_ref
from rules.objects.pod import Pod, set_circumstances
from rules.objects.view import Views
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.relevance.pods import old_metadata_traits
from rules.relevance.traits import (
    inventory_traits,
    store_traits,
    traits_of,
    traits_of_raw_pod,
)
from rules.workloads.discovery import find_subjects
from rules.workloads.dynamo import path_in_service
from rules.workloads.field_types import COMPILED_METADATA, COMPILED_POD, conforms_to_types
from rules.workloads.pod_search import MalformedField, Subject


class RuleFailure(NamedTuple):
    """A rule that raised, or whose edits did not fit: a bug of gpuward."""

    rule: str
    error: str


RuleFindings: TypeAlias = tuple[Sequence[Finding], str]
"""The findings of a rule about a subject, and its error if it raised one."""


class EvaluationResult:
    """The result of the rules for one manifest.

    - `findings`: those that nothing suppresses, excepts or supersedes.
    - `malformed_fields`: fields of the wrong type; rules read them as empty.
    - `failures`: bugs of gpuward.
    - `excepted`: the rule of each finding that an exception of the policy accepts.
    - `suppressed`: how many findings were suppressed.
    - `pod_paths`: the `whole_path` of each pod that the manifest holds; `components`: how many of
      them are components of the GPU platform for which no rule is run.
    - `excused`: for each component the path of its spec, and the rules that are not run; none if
      no rule is run.
    - `other_objects`: how many objects it holds that are no pods, and that rules are about.
    - `results_by_subject`: what each rule has said about each subject, before exceptions apply.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.malformed_fields: list[MalformedField] = []
        self.failures: list[RuleFailure] = []
        self.excepted: list[str] = []
        self.suppressed = 0
        self.pod_paths: list[Path] = []
        self.components = 0
        self.excused: list[tuple[Path, tuple[str, ...]]] = []
        self.other_objects = 0
        self.used_exceptions: set[PolicyException] = set()
        self.results_by_subject: Sequence[Mapping[str, RuleFindings]] = ()


def introduced_findings(new: Iterable[Finding], old: Iterable[Finding]) -> list[Finding]:
    """The findings of `new` that `old` does not have, as multisets of identity and message."""
    known = Counter((finding.identity, finding.message) for finding in old)
    added = []
    for finding in new:
        mark = (finding.identity, finding.message)
        if known[mark]:
            known[mark] -= 1
        else:
            added.append(finding)
    return added


ISOLATION_FAMILIES = frozenset({"bypass", "security"})
"""The families whose rules agents of the platform may break."""
NO_FINDINGS: RuleFindings = ((), "")
"""No finding and no error of a rule."""


class ResultsByRule(dict[str, RuleFindings]):
    """The results of rules for a subject, now and in an `earlier` evaluation.

    A reused result is charged the steps that it took at first. So an object exceeds the limit of
    steps in every evaluation, or in none.
    """

    def __init__(self, earlier: Mapping[str, RuleFindings]) -> None:
        super().__init__()
        self.earlier = earlier


def _with_policy(
    finding: Finding, active: ActiveRule, subject: Subject, context: Context
) -> Finding:
    """Return a rule's findings as its policy has them, with the advice that all rules share."""
    is_partial = False
    if isinstance(subject, Pod):
        is_partial = subject.is_partial
        if subject.is_daemon and active.rule.family in ISOLATION_FAMILIES:
            advice = advice_for_agents(finding, active.rule.name, subject, context)
            finding = finding._replace(help=finding.help + advice)
        if subject.layout.is_part:
            finding = finding._replace(fix=None)
        if subject.layout.is_text:
            finding = finding._replace(path=subject.path)  # inside a text there are no fields
        if subject.layout.is_merged:
            finding = _as_reference(finding, subject)
        if subject.layout.is_service:
            below = path_in_service(subject.holder, finding.path[len(subject.path) :])
            finding = finding._replace(path=(*subject.whole_path, *below))
    fixable = finding.has_fix(active.fix_scope, is_partial=is_partial)
    action = min(finding.action, active.action)
    return finding.with_rule(active.rule.name, subject, action, fixable=fixable)


def _as_reference(finding: Finding, merged: Pod) -> Finding:
    """The finding at the reference to the object that has most of the pod; no edit changes it."""
    if finding.path[: len(merged.path)] != merged.path:
        return finding  # a field of the manifest itself
    where = f"; the template is in the {merged.parts[0].object}" if merged.parts else ""
    return finding._replace(path=merged.whole_path, fix=None, help=finding.help + where)


def check_subject(
    active: ActiveRule, subject: Subject, context: Context, limit: StepLimit, steps: int
) -> RuleFindings:
    """The findings of the rule about `subject`, and its error if it raised one.

    `context` has no options yet. `steps` are those of a rule that finds nothing; they are taken
    from `limit`, and each finding takes more.
    """
    rule = active.rule
    if not isinstance(subject, rule.subject):
        return NO_FINDINGS
    if isinstance(subject, Pod):
        if rule.needs_resources and subject.layout.gpu_field:
            return NO_FINDINGS
        if rule.name in subject.excused_rules and active.suppressible:
            return NO_FINDINGS
    limit.take(steps)
    results = subject.results_by_rule
    earlier = results.earlier.get(rule.name) if isinstance(results, ResultsByRule) else None
    if earlier is not None:
        limit.take(sum(map(steps_of_finding, earlier[0])))
        return earlier
    findings: list[Finding] = []
    if active.options:
        context = context.with_profile(context.profile, active.options)
    try:
        for finding in rule.check(subject, context):
            reported = _with_policy(finding, active, subject, context)
            limit.take(steps_of_finding(reported))
            findings.append(reported)
    except (TooManyStepsError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  # the one place where bugs of rules are caught
        return findings, f"{type(error).__name__}: {error}"
    return (findings, "") if findings else NO_FINDINGS


# Most objects are ordinary Pods. These are recognised without a search for pods in them.


def well_formed_pod(manifest: Json) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Spec and metadata of a Pod whose fields all have the right types; None for all else.

    Such a pod is the manifest's only subject, and most such pods need no view. A Pod without
    containers is left to the search, which looks for them elsewhere.
    """
    if type(manifest) is not dict or manifest.get("kind") != "Pod" or "items" in manifest:
        return None
    spec: Any = manifest.get("spec")
    metadata: Any = manifest.get("metadata")
    if manifest.get("apiVersion") != "v1" or not conforms_to_types(spec, COMPILED_POD):
        return None
    if not spec.get("containers"):
        return None
    return (spec, metadata) if conforms_to_types(metadata, COMPILED_METADATA) else None


def pod_from_raw(
    spec: Mapping[str, Any], metadata: Mapping[str, Any], profile: Profile, namespace: str | None
) -> Pod:
    """The view of a `well_formed_pod`."""
    owner = object_ref("Pod", "", metadata, namespace)
    pod = Pod(
        owner,
        profile,
        spec=(spec, ("spec",)),
        metadata=(metadata, ("metadata",)),
        stable_path="spec",
    )
    pod.owner_metadata, pod.owner_spec = pod.metadata_view, spec
    pod.owners = [owner for _, owner in as_objects(metadata.get("ownerReferences"))]
    return pod


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
        inventory = context.inventory
        self._profile = (
            inventory.compute_once(profile_with_classes, rule_set.profile)
            if inventory
            else rule_set.profile
        )
        self._request_context = context
        self._suppress = suppress
        self._common_traits = EVERY_POD | rule_set.profile_traits
        self._common_traits |= inventory_traits(inventory)
        if context.old_metadata is not None:
            self._common_traits |= old_metadata_traits(context.old_metadata)
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
            self._set_subjects(self._find_subjects(manifest))
        else:
            self._start_with_pod(*pod, status=as_object(manifest).get("status"))

    def _start_with_pod(self, spec: Any, metadata: Any, status: Any) -> None:
        profile = self._profile
        self.result.pod_paths.append(("spec",))
        traits = traits_of_raw_pod(spec, metadata, profile)
        all_traits = traits.all | self._common_traits
        if self._rule_set.relevant_rules(all_traits):
            namespace = self._request_context.namespace
            pod = pod_from_raw(spec, metadata, profile, namespace)
            pod.set_status(as_object(status))
            if self._should_evaluate(pod):
                store_traits(pod, traits)
                self._set_subjects([(pod, all_traits, steps_of(pod))])

    def _find_subjects(self, manifest: Json) -> list[tuple[Subject, int, int]]:
        subjects = []
        namespace, inventory = self._request_context.namespace, self._request_context.inventory
        take = self._steps.take
        for subject in find_subjects(
            manifest, self._profile, namespace, inventory=inventory, take_steps=take
        ):
            if isinstance(subject, MalformedField):
                self.result.malformed_fields.append(subject)
                continue
            if isinstance(subject, Pod):
                take(STEPS_OF_A_POD + len(subject.path))
                if not subject.layout.is_merged:
                    self.result.pod_paths.append(subject.whole_path)
                elif exceeds_bounds(subject.spec):
                    continue  # of the object with its template this is reported
            elif not (isinstance(subject, KubernetesObject) and subject.pods):
                self.result.other_objects += 1
            traits = self._traits_of(subject)
            if self._rule_set.relevant_rules(traits) and self._should_evaluate(subject):
                subjects.append((subject, traits, steps_of(subject)))
        return subjects

    def _traits_of(self, subject: Subject) -> int:
        return traits_of(subject) | self._common_traits

    def _set_subjects(self, subjects: list[tuple[Subject, int, int]]) -> None:
        """Evaluate these subjects, each with its traits and the steps that a rule takes for it."""
        self._subjects = subjects
        self._is_alone = len(subjects) == 1  # then `rules` are those that concern it
        if subjects:
            traits_of_all = 0
            for _, traits, _ in subjects:
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
        return self._request_context.with_profile(self._profile)

    def _should_evaluate(self, subject: Subject) -> bool:
        if not isinstance(subject, Pod):
            return True
        for pod in (subject, *subject.parts):
            set_circumstances(pod, self._request_context)
        component = component_of(subject, self._request_context)
        if component is not None:
            subject.is_component, subject.excused_rules = True, frozenset(component.rules)
            self.result.components += not component.rules
            self.result.excused.append((subject.path, component.rules))
            if not component.rules:
                return False
        return not is_mirror(subject, self._request_context)

    @property
    def results_by_subject(self) -> list[Mapping[str, RuleFindings]]:
        """Return the results of each rule that has run, for each subject."""
        return [subject.results_by_rule for subject, _, _ in self._subjects]

    def reuse_results(self, results_by_subject: Sequence[Mapping[str, RuleFindings]]) -> None:
        """Do not run again what an evaluation of the same manifest, as it was, has run."""
        for (subject, _, _), earlier in zip(
            self._subjects, results_by_subject, strict=bool(results_by_subject)
        ):
            subject.results_by_rule = ResultsByRule(earlier)

    def restart(self, manifest: Json) -> None:
        """Start over with `manifest`: the previous one, or what edits have made of it."""
        previous = self.result
        if previous.malformed_fields:  # list indices may have shifted
            self._start(manifest)
            return
        self.result = EvaluationResult()
        self.result.pod_paths, self.result.components = previous.pod_paths, previous.components
        self.result.other_objects, self.result.excused = previous.other_objects, previous.excused
        self._superseded = set()
        self._exceptions = self._exception_matcher()
        views: Views = {}
        # The steps stay: edits are counted themselves.
        self._set_subjects(
            [
                (view := subject.in_manifest(manifest, views), self._traits_of(view), steps)
                for subject, _, steps in self._subjects
            ]
        )

    def run_rule(self, active: ActiveRule) -> Sequence[Finding]:
        """Run one rule for every subject; the findings, which are also added to `result`."""
        reported: list[Finding] = []
        failure, name = "", active.rule.name
        for subject, traits, steps in self._subjects:
            results = subject.results_by_rule
            known = results.get(name)
            if known is None:
                known = NO_FINDINGS
                if self._is_alone or satisfies(traits, active.needs):
                    known = check_subject(active, subject, self._context, self._steps, steps)
                    if known[0] and isinstance(subject, Pod) and subject.parts:
                        known = self._without_findings_of_parts(known, active, subject, steps)
                results[name] = known
            if known is NO_FINDINGS:
                continue
            findings, error = known
            own = [f for f in findings if self._is_reported(f, active, subject)]
            if self._exceptions:
                own = [self._exceptions.with_expiry_hint(finding, subject) for finding in own]
            reported += own
            failure = failure or error
        if failure:
            self.result.failures.append(RuleFailure(name, failure))
            # The findings of a broken rule are kept, but its fixes cannot be trusted.
            reported = [finding._replace(fixable=False) for finding in reported]
        if reported:
            self.result.findings += reported
        return reported

    def _without_findings_of_parts(
        self, known: RuleFindings, active: ActiveRule, merged: Pod, steps: int
    ) -> RuleFindings:
        """The findings about a pod that the rule does not report about a part of it."""
        keys: set[str] = set()
        for part in merged.parts:
            if satisfies(self._traits_of(part), active.needs):
                found, _ = check_subject(active, part, self._context, self._steps, steps)
                keys.update(finding.key for finding in found)
        return [finding for finding in known[0] if finding.key not in keys], known[1]

    def _is_reported(self, finding: Finding, active: ActiveRule, subject: Subject) -> bool:
        """Return whether `finding` is not superseded by an earlier rule, excepted or suppressed."""
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
