"""Ask one rule after the other about one manifest, and keep what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from rules.context import Context
from rules.document import Json
from rules.plain import is_plain
from rules.pod import Pod, Quota
from rules.policy import ActiveRule, PolicyException, RuleSet
from rules.rule import Finding, FixScope, Rule
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
        self.excepted = 0
        self.suppressed = 0
        self.pods = 0
        self.components = 0
        self.used_exceptions: set[PolicyException] = set()


def never(_finding: Finding, _rule: ActiveRule) -> bool:
    """Suppress nothing."""
    return False


class Asking:
    """One manifest, its subjects, and what the rules have said of them so far."""

    def __init__(
        self, manifest: Json, rule_set: RuleSet, context: Context, suppress: Suppress
    ) -> None:
        self.verdict = Verdict()
        self._exceptions = rule_set.exceptions
        self._context = context._replace(profile=rule_set.profile)
        self._suppress = suppress
        self._claimed: set[tuple[str, Any, str, str]] = set()
        self._subjects: dict[type, list[Subject]] = {Pod: [], Quota: []}
        for subject in subjects_in(manifest, rule_set.profile, context.namespace):
            if isinstance(subject, Unreadable):
                self.verdict.unreadable.append(subject)
            elif isinstance(subject, Quota):
                self._subjects[Quota].append(subject)
            else:
                self.verdict.pods += 1
                if not self._is_passed_over(subject, rule_set):
                    self._subjects[Pod].append(subject)

    @property
    def has_subjects(self) -> bool:
        """Whether there is anything to ask about; most objects have nothing to do with GPUs."""
        return any(self._subjects.values())

    def _is_passed_over(self, pod: Pod, rule_set: RuleSet) -> bool:
        if not rule_set.judges_plain and is_plain(pod):
            return True
        if pod.is_component(self._context):
            self.verdict.components += 1
            return True
        return pod.is_mirror

    def ask(self, active: ActiveRule) -> list[Finding]:
        """The findings of one rule about every subject, stamped; they are kept in the verdict."""
        subjects = self._subjects[active.rule.subject]
        if not subjects:
            return []
        context = self._context
        if active.options:
            context = context._replace(options=active.options)
        found: list[Finding] = []
        failure = None
        for subject in subjects:
            try:
                for finding in active.rule.check(subject, context):
                    found.extend(self._judge(finding, active, subject))
            except Exception as error:  # noqa: BLE001  # the one place where our bugs are caught
                failure = failure or Failure(active.rule.name, f"{type(error).__name__}: {error}")
        if failure:
            self.verdict.failures.append(failure)
            # What a broken rule has found is kept; what it would change is not to be trusted.
            found = [finding._replace(fixable=False) for finding in found]
        self.verdict.findings.extend(found)
        return found

    def _judge(self, finding: Finding, active: ActiveRule, subject: Subject) -> Iterator[Finding]:
        rule = active.rule
        spot = (subject.path, finding.container_name, finding.key)
        if (rule.name, *spot) in self._claimed:
            return
        stamped = finding._replace(
            rule=rule.name,
            object=subject.object,
            place=subject.place,
            action=min(finding.action, active.action),
            fixable=_in_scope(finding, active.scope),
        )
        account = subject.service_account if isinstance(subject, Pod) else ""
        for exception in self._exceptions:
            if not exception.expired(self._context.today) and exception.covers(stamped, account):
                self._claim(rule, spot)
                self.verdict.used_exceptions.add(exception)
                self.verdict.excepted += 1
                return
        if self._suppress(stamped, active):
            self.verdict.suppressed += 1
            return
        self._claim(rule, spot)
        yield stamped

    def _claim(self, rule: Rule[Any], spot: tuple[Any, str, str]) -> None:
        """Silence the rules whose voice `rule` has here; a mere comment in a file does not."""
        self._claimed.update((other, *spot) for other in rule.instead_of)


def _in_scope(finding: Finding, scope: FixScope) -> bool:
    if finding.fix is None:
        return False
    return scope is FixScope.ALL or (scope is FixScope.SAFE and finding.fix.safe)
