"""The findings that an exception of a policy accepts, or a comment suppresses."""

import datetime
from collections.abc import Callable, Iterator
from typing import TypeAlias

from rules.base.json_values import Path
from rules.engine.rule_set import ActiveRule, PolicyException, RuleSet
from rules.finding import Finding
from rules.objects.pod import Pod
from rules.workloads.pod_search import Subject


class ExceptionMatcher:
    """The exceptions of `rules` on the day `today`, for one version of a manifest."""

    def __init__(self, rules: RuleSet, today: datetime.date) -> None:
        self._rules = rules
        self._today = today
        self._fitting_pods: dict[tuple[PolicyException, Path], bool] = {}

    def find(self, finding: Finding, subject: Subject) -> PolicyException | None:
        """The first exception that accepts `finding` about `subject`, or None."""
        return next(self._matches(finding, subject, expired=False), None)

    def with_expiry_hint(self, finding: Finding, subject: Subject) -> Finding:
        """`finding`, whose help says when an exception for it ended, if there was one."""
        matches = self._matches(finding, subject, expired=True)
        ends = [exception.expires for exception in matches if exception.expires is not None]
        if not ends:
            return finding
        hint = f"an exception for this ended after {max(ends)}"
        return finding._replace(help=f"{finding.help}; {hint}" if finding.help else hint)

    def _matches(
        self, finding: Finding, subject: Subject, *, expired: bool
    ) -> Iterator[PolicyException]:
        """The exceptions for `finding` about `subject`: those that have expired, or the others."""
        if finding.object is None:
            return
        account = subject.service_account if isinstance(subject, Pod) else ""
        for exception in self._rules.exceptions_in(finding.object.namespace):
            if (
                exception.has_expired(self._today) is expired
                and exception.covers(finding, account)
                and self._fits_containers(exception, finding, subject)
            ):
                yield exception

    def _fits_containers(
        self, exception: PolicyException, finding: Finding, subject: Subject
    ) -> bool:
        """Return whether `exception` fits every container that `finding` concerns.

        These are its own, those that mount its volume, or, for the whole pod, all of them.
        """
        if not exception.names_containers:
            return True
        if finding.container is not None:
            return exception.fits_containers((finding.container,))
        if finding.containers:
            return exception.fits_containers(finding.containers)
        # A pod may have many findings and many containers: look through these once.
        fits = self._fitting_pods.get((exception, subject.path))
        if fits is None:
            containers = subject.containers if isinstance(subject, Pod) else ()
            fits = exception.fits_containers(containers)
            self._fitting_pods[exception, subject.path] = fits
        return fits


Suppress: TypeAlias = Callable[[Finding, ActiveRule], bool]
"""Whether a finding is suppressed, as by a comment in a file."""


def suppress_nothing(_finding: Finding, _rule: ActiveRule) -> bool:
    """Suppress nothing."""
    return False
