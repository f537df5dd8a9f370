"""The rules of a policy as they act, and which of them may find something in a subject."""

from collections.abc import Iterable, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from rules.base.caching import BoundedCache, cached_property
from rules.base.traits import satisfies
from rules.finding import Action, FixScope
from rules.policy_exception import PolicyException
from rules.profile.profile import Profile
from rules.rule import Rule
from rules.traits.surroundings import profile_traits


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
        """The same with only the rules of these names."""
        wanted = frozenset(names)
        rules = tuple(active for active in self.rules if active.rule.name in wanted)
        return self._replace(rules=rules)
