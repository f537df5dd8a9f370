"""A policy: which rules act, how, and for whom. It is resolved once into a rule set."""

import datetime
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from rules.base.caching import BoundedCache, cached_property
from rules.base.patterns import matches_any
from rules.catalog.index import CATALOG
from rules.finding import Action, Finding, FixScope
from rules.objects.container import Container
from rules.profile.context import NO_OPTIONS
from rules.profile.profile import Profile
from rules.rule import Rule
from rules.traits.bits import satisfies

SECURITY_FAMILIES = ("bypass", "security", "sharing")
"""Rules of these protect other tenants: an exception to one must name the namespaces it is for."""


class RuleSettings(NamedTuple):
    """What a policy says about one rule; None where it says nothing."""

    action: Action | None = None
    fix: bool | None = None
    options: Mapping[str, Any] = NO_OPTIONS
    suppressible: bool = True


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


class Delegation(NamedTuple):
    """Exceptions that owners of the `namespaces` may make to `rules`, by GpuException objects.

    Each lasts at most `longest_days` from the day on which it was created. With `needs_approval`,
    somebody with the right to approve it must have done so.
    """

    rules: tuple[str, ...]
    namespaces: tuple[str, ...]
    longest_days: int
    needs_approval: bool = True

    def covers(self, rule: str, namespace: str) -> bool:
        """Whether owners of `namespace` may make exceptions to `rule`."""
        return rule in self.rules and matches_any(self.namespaces, namespace)


class Policy(NamedTuple):
    """One policy, checked, with its profiles merged."""

    profile: Profile
    rules: Mapping[str, RuleSettings] = MappingProxyType({})
    exceptions: tuple[PolicyException, ...] = ()
    delegations: tuple[Delegation, ...] = ()
    catalog: str | None = None
    on_rule_error: Literal["allow", "deny"] = "allow"
    workloads: Literal["warn", "fix", "deny"] = "warn"
    void_every_container: bool = False
    contact: str = ""
    docs_url: str = ""
    nag: bool = False

    def rule_set(self) -> "RuleSet":
        """The rules that are not off, as they act."""
        active = (self.activate(rule) for rule in CATALOG)
        return RuleSet(
            rules=tuple(rule for rule in active if rule.action is not Action.OFF),
            profile=self.profile,
            exceptions=self.exceptions,
        )

    def activate(self, rule: Rule[Any]) -> "ActiveRule":
        """The rule as it acts, perhaps not at all: its action may be off."""
        settings = self.rules.get(rule.name, RuleSettings())
        action = rule.action if settings.action is None else settings.action
        scope = {None: FixScope.SAFE, False: FixScope.NONE, True: FixScope.ALL}[settings.fix]
        if self.catalog is not None and parse_version(rule.since) > parse_version(self.catalog):
            action, scope = min(action, Action.AUDIT), FixScope.NONE
        options, needs = {**rule.options, **settings.options}, rule.needs
        if "every_container" in rule.options:
            options["every_container"] = self.void_every_container
            needs = () if self.void_every_container else needs
        return ActiveRule(rule, action, scope, options, settings.suppressible, needs)


class ActiveRule(NamedTuple):
    """A rule as a policy configures it. `needs` are those of the rule, or none."""

    rule: Rule[Any]
    action: Action
    scope: FixScope
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
            found = tuple(e for e in self.exceptions if e.is_for(namespace))
            self._exceptions_by_namespace.store(namespace, found)
        return found

    @cached_property
    def _relevant_rules(self) -> BoundedCache[int, tuple[tuple[int, ActiveRule], ...]]:
        return BoundedCache()

    def relevant_rules(self, traits: int) -> tuple[tuple[int, ActiveRule], ...]:
        """The rules that may find something in a subject with `traits`, with their numbers."""
        found = self._relevant_rules.get(traits)
        if found is None:
            numbered = enumerate(self.rules)
            found = tuple((n, active) for n, active in numbered if satisfies(traits, active.needs))
            self._relevant_rules.store(traits, found)
        return found

    def restricted_to(self, names: Iterable[str]) -> "RuleSet":
        """The same with only the rules of these names."""
        wanted = frozenset(names)
        rules = tuple(active for active in self.rules if active.rule.name in wanted)
        return self._replace(rules=rules)


def parse_version(text: str) -> tuple[int, ...]:
    """A dotted version for comparison, 1 as good as 1.0; ValueError if it is none."""
    parts = [int(part) for part in text.split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)
