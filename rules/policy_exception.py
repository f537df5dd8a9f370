"""An exception of a policy: findings that it accepts."""

import datetime
from collections.abc import Iterable
from typing import NamedTuple

from rules.base.words import matches_any
from rules.finding import Finding
from rules.objects.container import Container


class PolicyException(NamedTuple):
    """Findings of `rules` that are accepted where every given pattern fits; empty fits all."""

    rules: tuple[str, ...]
    reason: str
    expires: datetime.date | None = None
    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()

    def expired(self, today: datetime.date) -> bool:
        """Whether the last day on which the exception holds is over."""
        return self.expires is not None and today > self.expires

    def is_for(self, namespace: str) -> bool:
        """Whether the exception may accept something in `namespace`."""
        return not self.namespaces or matches_any(self.namespaces, namespace)

    def covers(self, finding: Finding, service_account: str) -> bool:
        """Whether the exception is about `finding`, in a pod that runs as `service_account`.

        It accepts the finding if it also fits the containers concerned: `fits_containers`.
        """
        ref = finding.object
        if ref is None or finding.rule not in self.rules:
            return False
        facts = (
            (self.kinds, ref.kind),
            (self.names, ref.name),
            (self.service_accounts, service_account),
        )
        return self.is_for(ref.namespace) and all(
            not patterns or matches_any(patterns, fact) for patterns, fact in facts
        )

    @property
    def names_containers(self) -> bool:
        """Whether the exception has patterns of images or of names of containers."""
        return bool(self.images or self.containers)

    def fits_containers(self, containers: Iterable[Container]) -> bool:
        """Whether every one of `containers`, of which there must be one, has image and name."""
        facts = [(container.image, container.name) for container in containers]
        return bool(facts) and all(
            (not self.images or matches_any(self.images, image))
            and (not self.containers or matches_any(self.containers, name))
            for image, name in facts
        )
