"""Which findings a policy's exceptions accept."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from rules.base.json_patch import Path
from rules.finding import Finding
from rules.objects.device_claim import DeviceClaim
from rules.objects.pod import Pod
from rules.objects.quota import Quota
from rules.policy import PolicyException


class ExceptionMatcher:
    """The exceptions that have not expired, for one version of a manifest."""

    def __init__(self, exceptions: Iterable[PolicyException], today: datetime.date) -> None:
        self._exceptions = [one for one in exceptions if not one.expired(today)]
        self._fitting_pods: dict[tuple[PolicyException, Path], bool] = {}

    def find(self, finding: Finding, subject: Pod | Quota | DeviceClaim) -> PolicyException | None:
        """The first exception that accepts `finding` about `subject`, or None."""
        account = subject.service_account if isinstance(subject, Pod) else ""
        for exception in self._exceptions:
            if exception.covers(finding, account) and self._fits(exception, finding, subject):
                return exception
        return None

    def _fits(
        self, exception: PolicyException, finding: Finding, subject: Pod | Quota | DeviceClaim
    ) -> bool:
        """Whether `exception` fits every container that `finding` concerns.

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
