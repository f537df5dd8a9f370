"""Ask one rule after the other about one manifest, and keep what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from rules.document import Json
from rules.pod import Pod, Quota
from rules.policy import ActiveRule, PolicyException, RuleSet
from rules.profile import Context
from rules.rule import Finding, FixScope
from rules.workloads import Unreadable, subjects_in

Subject: TypeAlias = Pod | Quota
Suppress: TypeAlias = Callable[[Finding, ActiveRule], bool]


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule that raised, or whose edits did not fit: a bug of ours."""

    rule: str
    error: str


@dataclass(slots=True)
class Verdict:
    """What the rules say about one manifest."""

    findings: list[Finding] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    excepted: int = 0
    suppressed: int = 0
    objects: int = 0
    pods: int = 0
    used_exceptions: set[PolicyException] = field(default_factory=set)


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
        self._context = replace(context, profile=rule_set.profile)
        self._suppress = suppress
        self._claimed: set[tuple[str, Any, str, str]] = set()
        self._subjects: dict[type, list[Subject]] = {Pod: [], Quota: []}
        owners = set()
        for subject in subjects_in(manifest, rule_set.profile, context.namespace):
            if isinstance(subject, Unreadable):
                self.verdict.unreadable.append(subject)
            elif isinstance(subject, Quota):
                self._subjects[Quota].append(subject)
            else:
                self.verdict.pods += 1
                if not subject.is_mirror and not subject.is_component(self._context):
                    self._subjects[Pod].append(subject)
            owners.add(subject.object)
        self.verdict.objects = len(owners)

    def ask(self, active: ActiveRule) -> list[Finding]:
        """The findings of one rule about every subject, stamped; they are kept in the verdict."""
        context = self._context
        if active.options:
            context = replace(context, options=active.options)
        found: list[Finding] = []
        failure = None
        for subject in self._subjects[active.rule.subject]:
            try:
                for finding in active.rule.check(subject, context):
                    found.extend(self._judge(finding, active, subject))
            except Exception as error:  # noqa: BLE001  # the one place where our bugs are caught
                failure = failure or Failure(active.rule.name, f"{type(error).__name__}: {error}")
        if failure:
            self.verdict.failures.append(failure)
            # What a broken rule has found is kept; what it would change is not to be trusted.
            found = [replace(finding, fixable=False) for finding in found]
        self.verdict.findings.extend(found)
        return found

    def _judge(self, finding: Finding, active: ActiveRule, subject: Subject) -> Iterator[Finding]:
        rule = active.rule
        spot = (subject.path, finding.container_name, finding.key)
        if (rule.name, *spot) in self._claimed:
            return
        self._claimed.update((other, *spot) for other in rule.instead_of)
        stamped = replace(
            finding,
            rule=rule.name,
            object=subject.object,
            place=subject.place,
            action=min(finding.action, active.action),
            fixable=_in_scope(finding, active.scope),
        )
        account = subject.service_account if isinstance(subject, Pod) else ""
        for exception in self._exceptions:
            if not exception.expired(self._context.today) and exception.covers(stamped, account):
                self.verdict.used_exceptions.add(exception)
                self.verdict.excepted += 1
                return
        if self._suppress(stamped, active):
            self.verdict.suppressed += 1
            return
        yield stamped


def _in_scope(finding: Finding, scope: FixScope) -> bool:
    if finding.fix is None:
        return False
    return scope is FixScope.ALL or (scope is FixScope.SAFE and finding.fix.safe)
