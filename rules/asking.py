"""Ask one rule after the other about one manifest, and keep what they say."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, TypeAlias

from rules.components import is_component
from rules.context import Context
from rules.document import Json
from rules.glance import plain_pod, view_of
from rules.lazy import kept
from rules.pod import Pod
from rules.policy import ActiveRule, PolicyException, RuleSet
from rules.quota import Quota
from rules.rule import Finding, FixScope
from rules.telling import keep, traits_at_a_glance, traits_of
from rules.traits import QUOTA, suffice
from rules.workloads import Unreadable, subjects_in

Subject: TypeAlias = Pod | Quota
Suppress: TypeAlias = Callable[[Finding, ActiveRule], bool]


class Failure(NamedTuple):
    """A rule that raised, or whose edits did not fit: a bug of ours."""

    rule: str
    error: str


class Verdict:
    """What the rules say about one manifest."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.unreadable: list[Unreadable] = []
        self.failures: list[Failure] = []
        self.excepted: list[str] = []
        self.suppressed = 0
        self.pods = 0
        self.components = 0
        self.used_exceptions: set[PolicyException] = set()


def never(_finding: Finding, _rule: ActiveRule) -> bool:
    """Suppress nothing."""
    return False


class Asking:
    """One manifest, its subjects, and what the rules have said of them so far.

    Rules are pure, so what one has said about a view of a subject is kept with the view;
    what comes of it is judged anew each time.
    """

    def __init__(
        self, manifest: Json, rule_set: RuleSet, context: Context, suppress: Suppress
    ) -> None:
        self._rule_set = rule_set
        self._call = context
        self._suppress = suppress
        self._search(manifest)

    def _search(self, manifest: Json) -> None:
        self.verdict = Verdict()
        self._claimed: set[tuple[Any, ...]] = set()
        self._subjects: list[tuple[Subject, int]] = []
        self.rules: tuple[tuple[int, ActiveRule], ...] = ()
        plain = plain_pod(manifest)
        if plain is None:
            self._search_everywhere(manifest)
            return
        spec, metadata = plain
        profile, self.verdict.pods = self._rule_set.profile, 1
        traits, told = traits_at_a_glance(spec, metadata, profile)
        if self._rule_set.concerning(traits):
            pod = view_of(spec, metadata, profile, self._call.namespace)
            if self._is_judged(pod):
                keep(pod, traits, told)
                self._begin([(pod, traits)])

    def _search_everywhere(self, manifest: Json) -> None:
        subjects: list[tuple[Subject, int]] = []
        for subject in subjects_in(manifest, self._rule_set.profile, self._call.namespace):
            if isinstance(subject, Unreadable):
                self.verdict.unreadable.append(subject)
            elif isinstance(subject, Quota):
                subjects.append((subject, QUOTA))
            else:
                self.verdict.pods += 1
                traits = traits_of(subject)
                if self._rule_set.concerning(traits) and self._is_judged(subject):
                    subjects.append((subject, traits))
        self._begin(subjects)

    @kept
    def _context(self) -> Context:
        """What rules are told of the call, if there is anything to ask them."""
        return self._call.having(self._rule_set.profile)

    def _begin(self, subjects: list[tuple[Subject, int]]) -> None:
        """Take the rules that concern `subjects`; mostly there are none of these."""
        self._subjects = subjects
        if subjects:
            common = reduce(or_, (traits for _, traits in subjects))
            self.rules = self._rule_set.concerning(common)

    def _is_judged(self, pod: Pod) -> bool:
        if is_component(pod, self._call):
            self.verdict.components += 1
            return False
        return not pod.is_mirror

    def again(self, manifest: Json) -> None:
        """Start over with `manifest`, which edits of the subjects have made of the one before."""
        before = self.verdict
        if before.unreadable:  # its indices may have shifted
            self._search(manifest)
            return
        self.verdict = Verdict()
        self.verdict.pods, self.verdict.components = before.pods, before.components
        self._claimed = set()
        renewed = (subject.renewed(manifest) for subject, _ in self._subjects)
        self._begin([(subject, traits_of(subject)) for subject in renewed])

    def ask(self, active: ActiveRule) -> list[Finding]:
        """The findings of one rule about every subject, stamped; they are kept in the verdict."""
        found: list[Finding] = []
        failure = ""
        for subject, traits in self._subjects:
            if not suffice(traits, active.needs):
                continue
            answer = subject.answers.get(active.rule.name)
            if answer is None:
                answer = subject.answers[active.rule.name] = self._answer(active, subject)
            findings, error = answer
            if findings:
                found += [f for f in findings if self._is_heard(f, active, subject)]
            failure = failure or error
        if failure:
            self.verdict.failures.append(Failure(active.rule.name, failure))
            # What a broken rule has found is kept; what it would change is not to be trusted.
            found = [finding._replace(fixable=False) for finding in found]
        self.verdict.findings += found
        return found

    def _answer(self, active: ActiveRule, subject: Subject) -> tuple[list[Finding], str]:
        """What the rule says about `subject`, stamped, and how it failed if it did."""
        rule = active.rule
        found: list[Finding] = []
        if not isinstance(subject, rule.subject):
            return found, ""
        context = self._context
        if active.options:
            context = context.having(context.profile, active.options)
        try:
            for finding in rule.check(subject, context):
                action = min(finding.action, active.action)
                fixable = _in_scope(finding, active.scope)
                found.append(finding.stamped(rule.name, subject, action, fixable=fixable))
        except Exception as error:  # noqa: BLE001  # the one place where our bugs are caught
            return found, f"{type(error).__name__}: {error}"
        return found, ""

    def _is_heard(self, finding: Finding, active: ActiveRule, subject: Subject) -> bool:
        """Whether no other rule, exception or comment silences `finding`."""
        spot = (subject.path, finding.container_name, finding.key)
        if self._claimed and (finding.rule, *spot) in self._claimed:
            return False
        if self._rule_set.exceptions and self._is_excepted(finding, subject):
            self.verdict.excepted.append(finding.rule)
            heard = False
        elif self._suppress(finding, active):
            self.verdict.suppressed += 1
            return False  # a mere comment in a file silences no other rule
        else:
            heard = True
        if active.rule.instead_of:
            self._claimed.update((other, *spot) for other in active.rule.instead_of)
        return heard

    def _is_excepted(self, finding: Finding, subject: Subject) -> bool:
        account = subject.service_account if isinstance(subject, Pod) else ""
        for exception in self._rule_set.exceptions:
            if not exception.expired(self._context.today) and exception.covers(finding, account):
                self.verdict.used_exceptions.add(exception)
                return True
        return False


def _in_scope(finding: Finding, scope: FixScope) -> bool:
    if finding.fix is None:
        return False
    return scope is FixScope.ALL or (scope is FixScope.SAFE and finding.fix.safe)
