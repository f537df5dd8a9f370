"""The rules of a policy as they act, and which of them may find something in a subject."""

import datetime
from collections.abc import Iterable, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from rules.base.caching import BoundedCache, cached_property
from rules.base.text_matching import matches_any
from rules.base.traits import satisfies
from rules.finding import Action, Finding, FixScope
from rules.objects.container import Container
from rules.profile.profile import Profile
from rules.relevance.traits import profile_traits
from rules.rule import Rule


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

    def has_expired(self, today: datetime.date) -> bool:
        """Return whether the last day on which the exception holds is over."""
        return self.expires is not None and today > self.expires

    def may_apply_in(self, namespace: str) -> bool:
        """Return whether the exception may accept something in `namespace`."""
        return not self.namespaces or matches_any(self.namespaces, namespace)

    def covers(self, finding: Finding, service_account: str) -> bool:
        """Return whether the exception is about `finding`, in a pod that runs as `service_account`.

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
        return self.may_apply_in(ref.namespace) and all(
            not patterns or matches_any(patterns, fact) for patterns, fact in facts
        )

    @property
    def names_containers(self) -> bool:
        """Return whether the exception has patterns of images or of names of containers."""
        return bool(self.images or self.containers)

    def fits_containers(self, containers: Iterable[Container]) -> bool:
        """Return whether there are `containers`, and each has this image and name."""
        facts = [(container.image, container.name) for container in containers]
        return bool(facts) and all(
            (not self.images or matches_any(self.images, image))
            and (not self.containers or matches_any(self.containers, name))
            for image, name in facts
        )


class ActiveRule(NamedTuple):
    """A rule as a policy configures it. `needs` are those of the rule, or none."""

    rule: Rule[Any]
    action: Action
    fix_scope: FixScope
    options: Mapping[str, Any]
    suppressible: bool
    needs: tuple[int, ...] = ()


class _RuleSetFields(NamedTuple):
    rules: tuple[ActiveRule, ...]
    profile: Profile
    exceptions: tuple[PolicyException, ...] = ()


class RuleSet(_RuleSetFields):
    """The rules of one policy in the order in which they run."""

    @cached_property
    def _exceptions_by_namespace(self) -> BoundedCache[str, tuple[PolicyException, ...]]:
        return BoundedCache()

    def exceptions_in(self, namespace: str) -> tuple[PolicyException, ...]:
        """The exceptions that may accept something in `namespace`, in their order."""
        if not self.exceptions:
            return ()
        found = self._exceptions_by_namespace.get(namespace)
        if found is None:
            found = tuple(e for e in self.exceptions if e.may_apply_in(namespace))
            self._exceptions_by_namespace.store(namespace, found)
        return found

    @cached_property
    def profile_traits(self) -> int:
        """The traits that every subject has by the profile."""
        return profile_traits(self.profile)

    @cached_property
    def _by_needs(self) -> tuple[tuple[tuple[int, ...], list[tuple[int, ActiveRule]]], ...]:
        """The numbered rules, together with the others that need the same traits."""
        groups: dict[tuple[int, ...], list[tuple[int, ActiveRule]]] = {}
        for numbered in enumerate(self.rules):
            groups.setdefault(numbered[1].needs, []).append(numbered)
        return tuple(groups.items())

    @cached_property
    def _relevant_rules(self) -> BoundedCache[int, tuple[tuple[int, ActiveRule], ...]]:
        return BoundedCache()

    def relevant_rules(self, traits: int) -> tuple[tuple[int, ActiveRule], ...]:
        """The rules that may find something in a subject with `traits`, with their numbers."""
        found = self._relevant_rules.get(traits)
        if found is None:
            groups = (rules for needs, rules in self._by_needs if satisfies(traits, needs))
            found = tuple(sorted(chain.from_iterable(groups), key=itemgetter(0)))
            self._relevant_rules.store(traits, found)
        return found

    def restricted_to(self, names: Iterable[str]) -> "RuleSet":
        """Return this rule set with only the rules of these names."""
        wanted = frozenset(names)
        rules = tuple(active for active in self.rules if active.rule.name in wanted)
        return self._replace(rules=rules)
