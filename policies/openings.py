"""Find what a changed policy lets through, by comparing two policies and not by samples.

Rules are pure: of one object, two policies with the same profile and the same options of a rule see
the same *raw* findings of it. What becomes of a finding follows from the settings of its rule, from
the exceptions that accept it, and from earlier rules that silence it. All of these are finite, so
they are enumerated:

- a raw finding has an action, and no fix, a safe one or another one: twelve classes;
- an exception accepts a box: a product of patterns, one for each fact about an object. A pattern of
  the new policy stands for the text in which each `*` is a character that no pattern has. An old
  pattern that matches this text matches everything that the new one does, so one text decides about
  a whole pattern, and one place about a whole box: exactly, for any number of old exceptions;
- rules that silence others are few: every combination of their findings at one spot is tried where
  the policies differ in which of these rules are on.

docs/policy-proofs.md says what is claimed. `find_openings` returns candidates: the caller shows an
object for each, or says that it has none.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from inspect import signature
from itertools import product
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias

from policies.option_order import loosened_options, unused_character
from policies.policy import GpuExceptionLimits, Policy
from rules.base.text_matching import matches, matches_any
from rules.base.traits import PROFILE_ENFORCED_LABELS, PROFILE_SCHEDULERS
from rules.catalog.index import CATALOG
from rules.engine.rule_set import ActiveRule, PolicyException
from rules.finding import Action, FixScope
from rules.profile.profile import Component, Profile
from rules.relevance.traits import profile_traits
from rules.rule import Rule

Claim: TypeAlias = Literal["refuses", "fixes"]
"""The old policy does this with a finding, and the new one may not."""
_CLAIMS: tuple[Claim, ...] = ("refuses", "fixes")
MAX_COMPARISONS = 1_000_000
"""How many comparisons of exceptions are made: a few seconds."""
MAX_BOXES = 10_000
"""How many combinations of its patterns one exception may have."""
MAX_OPENINGS = 1_000
"""How many openings are listed."""
FACTS = ("namespaces", "kinds", "names", "service_accounts", "images", "containers")
"""The facts about an object and a container that an exception has patterns of: its fields."""
_OBJECT_FACTS = FACTS[:4]
_CONTAINER_FACTS = FACTS[4:]
_ONE_DAY = datetime.timedelta(days=1)
_BYPASS_FAMILY = "bypass"
# What nothing but the profile gives to a subject: all have it, or none.
_TRAITS_OF_PROFILES = PROFILE_SCHEDULERS | PROFILE_ENFORCED_LABELS

Box: TypeAlias = Mapping[str, str]
"""One pattern for each fact that an exception restricts."""


class Opening(NamedTuple):
    """Something that the old policy refuses or fixes and the new one may let through.

    - `rules`: the rule whose finding it is, and those that may silence it;
    - `claims`: what the old policy does with the finding; one of these is to be shown;
    - `cause`: the difference between the policies, in words;
    - `boxes`: where it is, if that is not everywhere: the object and, for each, a container;
    - `day`: the first day;
    - `texts`, `numbers`: values of options that may matter;
    - `component`: the pods for which the new policy runs fewer rules;
    - `is_guess`: nothing says that there is such an object.
    """

    rules: tuple[str, ...]
    claims: tuple[Claim, ...]
    cause: str
    day: datetime.date
    boxes: tuple[Box, ...] = ({},)
    texts: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    component: Component | None = None
    is_guess: bool = False


class Comparison(NamedTuple):
    """The differences of two policies.

    - `openings`: to be shown by an object;
    - `settings`: what no object shows, and what the new policy certainly lets through;
    - `unknown`: why something could not be compared;
    - `notes`: differences that are no part of the claim.
    """

    openings: list[Opening]
    settings: list[str]
    unknown: list[str]
    notes: list[str]


class Treatment(NamedTuple):
    """The effect of a policy on a finding."""

    refuses: bool
    fixes: bool


_NOTHING = Treatment(refuses=False, fixes=False)


def _opened(old: Treatment, new: Treatment) -> tuple[Claim, ...]:
    """Return what the old policy does with something, and the new one does not."""
    claims: list[Claim] = []
    if old.refuses and not new.refuses:
        claims.append("refuses")
    if old.fixes and not (new.fixes or new.refuses):
        claims.append("fixes")
    return tuple(claims)


class _RawFinding(NamedTuple):
    """A class of findings as a rule makes them; `is_safe` is None if there is no fix."""

    action: Action
    is_safe: bool | None


class _TooManyComparisonsError(Exception):
    """The exceptions are too many to compare."""


def find_openings(old: Policy, new: Policy, today: datetime.date) -> Comparison:
    """Return what the policy `new` may let through, from `today` on, and `old` does not."""
    found = Comparison([], _loosened_settings(old, new), [], _notes(old, new))
    try:
        for opening in _Comparer(old, new, today).openings():
            found.openings.append(opening)  # those before an error count as well
    except _TooManyComparisonsError:
        found.unknown.append(
            f"the exceptions take more than {MAX_COMPARISONS:,} comparisons, one of them has more "
            f"than {MAX_BOXES:,} combinations of patterns, or they open more than "
            f"{MAX_OPENINGS:,} things"
        )
    if differing := differing_facts(old.profile, new.profile):
        found.unknown.append(
            f"the profiles differ in {', '.join(differing)}: what rules find by these is searched "
            "by examples and not compared"
        )
    if name := _excusable_silencer(old, new):
        found.unknown.append(
            f"{name} is on and silences other rules, and a GpuException may accept what it finds"
        )
    if _loses_narrow_component(old.profile, new.profile):
        found.unknown.append("a component for which some rules are run is missing or changed")
    if _reorders_narrow_components(old.profile, new.profile):
        found.unknown.append(
            "components are in another order, and the first one decides which rules are not run"
        )
    if name := _silencer_for_components(old, new):
        found.unknown.append(
            f"{name} silences other rules, and is now run for a component that it was not run for"
        )
    return found


def treatment(active: ActiveRule | None, raw: _RawFinding) -> Treatment:
    """Return what a policy with `active` does with a finding; None is a rule that is off.

    A stored object that a fix of the family bypass would have changed is refused as well.
    """
    if active is None:
        return _NOTHING
    action = min(raw.action, active.action)
    needed = {None: None, True: FixScope.SAFE, False: FixScope.ALL}[raw.is_safe]
    fixable = needed is not None and active.fix_scope >= needed
    return Treatment(
        refuses=action is Action.DENY or (fixable and active.rule.family == _BYPASS_FAMILY),
        fixes=fixable and action >= Action.AUDIT,
    )


class _Comparer:
    """Compares two policies from a day on."""

    def __init__(self, old: Policy, new: Policy, today: datetime.date) -> None:
        self._old, self._new = old, new
        self._today = today
        self._active = {rule.name: (_active(old, rule), _active(new, rule)) for rule in CATALOG}
        self._joker = _unused_character(old, new)
        self._is_profile_equal = not differing_facts(old.profile, new.profile)
        self._budget = _Budget()
        self._old_exceptions = _ExceptionIndex(old.exceptions, today, self._budget)
        known = frozenset(old.exceptions)
        # By rule, those that may accept more than before.
        self._changed: dict[str, list[PolicyException]] = {}
        self._all: dict[str, list[PolicyException]] = {}
        for exception in new.exceptions:
            if not exception.has_expired(today):
                for rule in exception.rules:
                    self._all.setdefault(rule, []).append(exception)
                    if exception not in known:
                        self._changed.setdefault(rule, []).append(exception)

    def openings(self) -> Iterator[Opening]:
        """Yield the openings, at most `MAX_OPENINGS`; raise _TooManyComparisonsError if more."""
        number = 0
        for number, opening in enumerate(self._openings()):
            if number >= MAX_OPENINGS:
                raise _TooManyComparisonsError
            yield opening

    def _openings(self) -> Iterator[Opening]:
        for rule in CATALOG:
            yield from self._of_settings(rule)
            yield from self._of_options(rule)
        for group in _groups():
            if any(self._is_switched(rule) for rule in group if rule.supersedes):
                yield from self._of_group(group)
        for component in self._new.profile.components:
            yield from self._of_component(component)
        for rule in CATALOG:
            yield from self._of_exceptions(rule)
        if not self._is_profile_equal:
            for rule in CATALOG:
                if claims := self._claims(rule):
                    yield Opening(
                        (rule.name,), claims, "the profiles differ", self._today, is_guess=True
                    )

    def _claims(self, rule: Rule[Any], new: ActiveRule | None = None) -> tuple[Claim, ...]:
        """Return what the old policy may do with findings of `rule`, and `new` may not."""
        old = self._active[rule.name][0]
        raw_findings = _raw_findings(rule.name)
        opened = {
            c for raw in raw_findings for c in _opened(treatment(old, raw), treatment(new, raw))
        }
        return tuple(claim for claim in _CLAIMS if claim in opened)

    def _kept_claims(self, rule: Rule[Any]) -> tuple[Claim, ...]:
        """Return what both policies do with findings of `rule` by its settings.

        For these exceptions count. What only the old one does is an opening by itself.
        """
        old, new = self._active[rule.name]
        pairs = [(treatment(old, raw), treatment(new, raw)) for raw in _raw_findings(rule.name)]
        claims: list[Claim] = []
        if any(before.refuses and after.refuses for before, after in pairs):
            claims.append("refuses")
        if any(before.fixes and (after.fixes or after.refuses) for before, after in pairs):
            claims.append("fixes")
        return tuple(claims)

    def _of_settings(self, rule: Rule[Any]) -> Iterator[Opening]:
        old, new = self._active[rule.name]
        if old != new and (claims := self._claims(rule, new)):
            yield Opening((rule.name,), claims, _difference(old, new), self._today)

    def _of_options(self, rule: Rule[Any]) -> Iterator[Opening]:
        old, new = self._active[rule.name]
        if old is None or new is None or old.options == new.options:
            return
        for loosened in loosened_options(rule.name, old.options, new.options):
            if claims := self._claims(rule):
                values = (loosened.old, loosened.new)
                texts = [v for one in values if isinstance(one, tuple) for v in one]
                numbers = [one for one in values if type(one) is int]
                yield Opening(
                    (rule.name,),
                    claims,
                    f"the option {loosened.name}: {_shown(loosened.old)} -> {_shown(loosened.new)}",
                    self._today,
                    texts=tuple(dict.fromkeys(texts)),
                    numbers=tuple(n + more for n in numbers for more in (0, 1)),
                )

    def _of_exceptions(self, rule: Rule[Any]) -> Iterator[Opening]:
        changed = self._changed.get(rule.name, ())
        claims = self._kept_claims(rule) if changed else ()
        for exception in changed if claims else ():
            for boxes in _containers_of(exception):
                day = self._first_open_day(rule.name, exception, boxes)
                if day is not None:
                    cause = f'the exception "{exception.reason}"'
                    if day > self._today:
                        cause += f" lasts longer than {day - _ONE_DAY}"
                    few = self._enough(boxes, day, (rule.name,))
                    yield Opening((rule.name,), claims, cause, day, few)
                    break

    def _first_open_day(
        self, rule: str, exception: PolicyException, boxes: tuple[Box, ...]
    ) -> datetime.date | None:
        """The first day on which `exception` accepts in `boxes` what no old one does, or None."""
        self._budget.spend(len(boxes))
        end = self._old_exceptions.covered_until(rule, self._places(boxes))
        if end is None:
            return self._today
        if exception.expires is None:
            return None if end == datetime.date.max else end + _ONE_DAY
        return None if end >= exception.expires else end + _ONE_DAY

    def _enough(
        self, boxes: tuple[Box, ...], day: datetime.date, rules: Iterable[str]
    ) -> tuple[Box, ...]:
        """Those of `boxes` that no old exception accepts together on `day`, for any of `rules`.

        No exception accepts all of them for one of `rules`.
        """
        places = self._places(boxes)
        found: set[int] = set()
        for rule in rules:
            found |= self._old_exceptions.refused_together(rule, places, day)
        return tuple(boxes[number] for number in sorted(found or {0}))

    def _places(self, boxes: Iterable[Box]) -> list[Mapping[str, str]]:
        """The text of each fact that stands for all that its pattern matches.

        A box that names no container also has what concerns none, as claims and quotas. What an old
        exception accepts there it accepts everywhere in the box, so the place has no container.
        """
        return [
            {
                fact: box.get(fact, "*").replace("*", self._joker)
                for fact in FACTS
                if fact in _OBJECT_FACTS or not box.keys().isdisjoint(_CONTAINER_FACTS)
            }
            for box in boxes
        ]

    def _is_switched(self, rule: Rule[Any]) -> bool:
        old, new = self._active[rule.name]
        return (old is None) is not (new is None)

    def _of_group(self, group: tuple[Rule[Any], ...]) -> Iterator[Opening]:
        """Yield what opens because a rule that silences others is on in one policy only."""
        switched = ", ".join(
            f"{rule.name} is {'off' if self._active[rule.name][1] is None else 'on'}"
            for rule in group
            if rule.supersedes and self._is_switched(rule)
        )
        seen: set[tuple[str, ...]] = set()
        for boxes, day, accepted_before, accepted in self._places_of_group(group):
            # What few findings show, more of them show as well.
            for findings in sorted(_combinations(group, self._active), key=len):
                self._budget.spend()
                names = tuple(rule.name for rule in reversed(group) if rule.name in findings)

                def opened(some: Mapping[str, _SpotFinding]) -> tuple[Claim, ...]:
                    old = _at_spot(group, some, 0, accepted_before)  # noqa: B023
                    new = _at_spot(group, some, 1, accepted)  # noqa: B023
                    return _opened(old, new)

                is_shown = any(set(few) <= set(names) for few in seen)
                if len(names) < 2 or is_shown or not opened(findings):  # noqa: PLR2004
                    continue
                # What one finding shows alone is an opening of its own.
                alone = [opened({name: finding}) for name, finding in findings.items()]
                claims = [c for c in opened(findings) if not any(c in each for each in alone)]
                if claims:
                    seen.add(names)
                    cause = f"{switched}, and rules silence each other"
                    yield Opening(names, tuple(claims), cause, day, boxes)

    def _places_of_group(
        self, group: tuple[Rule[Any], ...]
    ) -> Iterator[tuple[tuple[Box, ...], datetime.date, frozenset[str], frozenset[str]]]:
        """Yield each place that matters: boxes, a day, the rules excepted before, and now.

        The last one stands for places where several new exceptions meet.
        """
        names = [rule.name for rule in group]
        yield ({},), self._today, frozenset(), frozenset()
        exceptions = {e: None for name in names for e in self._all.get(name, ())}
        for exception in exceptions:
            for boxes in _containers_of(exception):
                self._budget.spend(len(boxes))
                places = self._places(boxes)
                ends = {name: self._old_exceptions.covered_until(name, places) for name in names}
                days = {self._today}
                days |= {end + _ONE_DAY for end in ends.values() if end and end < datetime.date.max}
                for day in sorted(days):
                    if not exception.has_expired(day):
                        before = {name for name, end in ends.items() if end and end >= day}
                        now = frozenset(exception.rules) & frozenset(names)
                        few = self._enough(boxes, day, [n for n in names if n not in before])
                        yield few, day, frozenset(before), now
        excepted = frozenset(name for name in names if name in self._all)
        if len(excepted) > 1:
            yield ({},), self._today, frozenset(), excepted

    def _of_component(self, component: Component) -> Iterator[Opening]:
        """Yield the rules that are not run for `component`, and were run before."""
        before = self._old.profile.components
        is_covered = any(_covers(other, component, self._joker) for other in before)
        rules = list(CATALOG)
        if is_covered:
            rules = [r for r in rules if r.name in component.rules and self._is_freed(r)]
        # Some rules look at components in other ways, so all of them count for a new one.
        rules = [rule for rule in rules if self._claims(rule)]
        rules.sort(key=lambda rule: rule.name not in component.rules)
        if not rules:
            return
        who = f"{', '.join(component.service_accounts)} in {', '.join(component.namespaces)}"
        why = "suppressible: false -> true, and" if is_covered else "a profile has"
        box = {
            "namespaces": component.namespaces[0],
            "service_accounts": component.service_accounts[0],
        }
        if component.images:
            box["images"] = component.images[0]
        claims = {claim for rule in rules for claim in self._claims(rule)}
        yield Opening(
            tuple(rule.name for rule in rules),
            tuple(claim for claim in _CLAIMS if claim in claims),
            f"{why} the component {who}",
            self._today,
            (box,),
            component=component,
        )

    def _is_freed(self, rule: Rule[Any]) -> bool:
        """Return whether a component may be excused from `rule`, and could not before."""
        old, new = self._active[rule.name]
        return bool(old and new and new.suppressible and not old.suppressible)


class _Budget:
    """The comparisons that are left."""

    def __init__(self) -> None:
        self._left = MAX_COMPARISONS

    def spend(self, count: int = 1) -> None:
        """Take `count`; raise _TooManyComparisonsError if so many are not left."""
        self._left -= count
        if self._left < 0:
            raise _TooManyComparisonsError


class _ExceptionIndex:
    """The exceptions of a policy that hold on a day, by rule and namespace."""

    def __init__(
        self, exceptions: Iterable[PolicyException], today: datetime.date, budget: _Budget
    ) -> None:
        self._budget = budget
        self._named: dict[tuple[str, str], list[PolicyException]] = {}
        self._others: dict[str, list[PolicyException]] = {}
        for exception in exceptions:
            if exception.has_expired(today):
                continue
            patterns = exception.namespaces
            for rule in exception.rules:
                if patterns and not any("*" in pattern for pattern in patterns):
                    for name in patterns:
                        self._named.setdefault((rule, name), []).append(exception)
                else:
                    self._others.setdefault(rule, []).append(exception)

    def covered_until(self, rule: str, places: Sequence[Mapping[str, str]]) -> datetime.date | None:
        """The last day on which one exception accepts `rule` in all `places`; None if none does.

        It is the last of all days if that exception does not end.
        """
        named = self._named.get((rule, places[0]["namespaces"]), ())
        last = None
        for exception in (*named, *self._others.get(rule, ())):
            self._budget.spend()
            end = exception.expires or datetime.date.max
            if (last is None or end > last) and all(_accepts(exception, one) for one in places):
                last = end
        return last

    def refused_together(
        self, rule: str, places: Sequence[Mapping[str, str]], day: datetime.date
    ) -> set[int]:
        """The numbers of a few of `places` that no exception accepts together on `day`.

        No exception may accept all of them. There are at most as many as exceptions, and one more.
        """
        found = {0}
        named = self._named.get((rule, places[0]["namespaces"]), ())
        for exception in (*named, *self._others.get(rule, ())):
            if exception.has_expired(day):
                continue
            self._budget.spend()
            if all(_accepts(exception, places[number]) for number in found):
                names = {places[number].get("containers") for number in found}
                others = (n for n, one in enumerate(places) if not _accepts(exception, one))
                # A pod has no two containers of one name.
                found.add(min(others, key=lambda n: places[n].get("containers") in names))
        return found


def _accepts(exception: PolicyException, place: Mapping[str, str]) -> bool:
    for fact in FACTS:
        patterns = getattr(exception, fact)
        if not patterns:
            continue
        # Not even `*` fits where there is no container. Nothing is cached: each text is met once.
        text = place.get(fact)
        if text is None or not any(matches(pattern, text) for pattern in patterns):
            return False
    return True


def _containers_of(exception: PolicyException) -> Iterator[tuple[Box, ...]]:
    """Yield the boxes of `exception`, each alone, and then those that differ by container together.

    A finding may concern several containers, and one exception must fit all of them.
    """
    given = [fact for fact in FACTS if getattr(exception, fact)]
    if prod(len(getattr(exception, fact)) for fact in given) > MAX_BOXES:
        raise _TooManyComparisonsError
    for patterns in product(*(getattr(exception, fact) for fact in given)):
        yield (dict(zip(given, patterns, strict=True)),)
    cells = [fact for fact in given if fact in _CONTAINER_FACTS]
    if any(len(getattr(exception, fact)) > 1 for fact in cells):
        fixed = [fact for fact in given if fact in _OBJECT_FACTS]
        for patterns in product(*(getattr(exception, fact) for fact in fixed)):
            of_object = dict(zip(fixed, patterns, strict=True))
            yield tuple(
                of_object | dict(zip(cells, cell, strict=True))
                for cell in product(*(getattr(exception, fact) for fact in cells))
            )


def _active(policy: Policy, rule: Rule[Any]) -> ActiveRule | None:
    """The rule as it acts; None if it is off, or is about something that the profile lacks."""
    active = policy.activate(rule)
    known = profile_traits(policy.profile)
    is_run = all(need & known or need & ~_TRAITS_OF_PROFILES for need in active.needs)
    return active if is_run and active.action is not Action.OFF else None


@cache
def _rules_with_fixes() -> frozenset[str]:
    from rules.catalog import order  # noqa: PLC0415  # it imports every rule

    groups = (order.NAME_CORRECTIONS, order.SAFE_FIXES, order.OPT_IN_FIXES)
    return frozenset(rule.name for group in groups for rule in group)


@cache
def _raw_findings(rule: str) -> tuple[_RawFinding, ...]:
    """The classes of findings that the rule may make; it need not make all of them."""
    fixes = (None, True, False) if rule in _rules_with_fixes() else (None,)
    return tuple(_RawFinding(action, is_safe) for action in Action for is_safe in fixes)


@cache
def _groups() -> tuple[tuple[Rule[Any], ...], ...]:
    """The rules that silence others or are silenced, in their order, connected ones together."""
    groups: list[set[str]] = []
    for rule in CATALOG:
        if rule.supersedes:
            names = {rule.name, *rule.supersedes}
            names |= {name for group in groups if group & names for name in group}
            groups = [*(group for group in groups if not group & names), names]
    return tuple(tuple(rule for rule in CATALOG if rule.name in group) for group in groups)


class _SpotFinding(NamedTuple):
    """A finding at a spot: for each of the two policies, None if its rule is off."""

    treatments: tuple[Treatment | None, Treatment | None]


def _combinations(
    group: tuple[Rule[Any], ...],
    active: Mapping[str, tuple[ActiveRule | None, ActiveRule | None]],
) -> Iterator[dict[str, _SpotFinding]]:
    """Yield every combination of findings of the rules of `group` at one spot."""
    choices: list[list[_SpotFinding | None]] = []
    for rule in group:
        old, new = active[rule.name]
        found = {
            _SpotFinding(
                (
                    treatment(old, raw) if old else None,
                    treatment(new, raw) if new else None,
                )
            )
            for raw in _raw_findings(rule.name)
        }
        choices.append([None, *sorted(found, key=str)])
    for chosen in product(*choices):
        yield {
            rule.name: finding
            for rule, finding in zip(group, chosen, strict=True)
            if finding is not None
        }


def _at_spot(
    group: tuple[Rule[Any], ...],
    findings: Mapping[str, _SpotFinding],
    side: Literal[0, 1],
    accepted: frozenset[str],
) -> Treatment:
    """Return what the policy of a `side` does at a spot, as `rules.engine.evaluation` does."""
    silent: set[str] = set()
    reported = []
    for rule in group:
        finding = findings.get(rule.name)
        own = finding.treatments[side] if finding else None
        if own is None or rule.name in silent:
            continue
        silent.update(rule.supersedes)
        if rule.name not in accepted:
            reported.append(own)
    return Treatment(any(one.refuses for one in reported), any(one.fixes for one in reported))


def _difference(old: ActiveRule | None, new: ActiveRule | None) -> str:
    """The settings that differ, in words."""
    actions = [(active.action if active else Action.OFF).word for active in (old, new)]
    parts = [f"action {actions[0]} -> {actions[1]}"] if actions[0] != actions[1] else []
    if old and new and old.fix_scope is not new.fix_scope:
        parts.append(f"fixes {old.fix_scope.name.lower()} -> {new.fix_scope.name.lower()}")
    return ", ".join(parts)


def _shown(value: Any) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, tuple | list) else str(value).lower()


@cache
def _names_of_facts() -> tuple[str, ...]:
    return tuple(
        name
        for name in signature(Profile.__init__).parameters
        if name not in {"self", "name", "description", "components"}
    )


def differing_facts(old: Profile, new: Profile) -> list[str]:
    """The facts, but for components, in which two profiles differ. The order counts."""

    def ordered(value: Any) -> Any:
        return list(value.items()) if isinstance(value, Mapping) else value

    return [
        name.replace("_", " ")
        for name in _names_of_facts()
        if ordered(getattr(old, name)) != ordered(getattr(new, name))
    ]


def _covers(old: Component, new: Component, joker: str) -> bool:
    """Return whether `old` leaves out every rule wherever `new` leaves out one."""
    if old == new:
        return True
    lists = (
        (old.namespaces, new.namespaces),
        (old.service_accounts, new.service_accounts),
        *([(old.images, new.images or ("*",))] if old.images else []),
    )
    return (
        not old.rules
        and old.creators == new.creators
        and (not old.programs or old.programs == new.programs)
        and all(
            matches_any(patterns, pattern.replace("*", joker))
            for patterns, others in lists
            for pattern in others
        )
    )


def _loses_narrow_component(old: Profile, new: Profile) -> bool:
    """Return whether a component with `rules` is gone: it may have come before a wider one."""
    return any(one.rules and one not in new.components for one in old.components)


def _reorders_narrow_components(old: Profile, new: Profile) -> bool:
    """Return whether another component may decide about a pod that two of them describe.

    It is the first of those with the fewest `rules`, as `rules.gpu.components` says.
    """
    orders = [
        sorted(
            dict.fromkeys(c for c in one.components if c.rules and c in other.components),
            key=lambda component: len(component.rules),
        )
        for one, other in ((old, new), (new, old))
    ]
    return orders[0] != orders[1]


def _silencer_for_components(old: Policy, new: Policy) -> str:
    """Return a rule that silences others and is run for a component that excused from it before."""
    excused = {name for component in new.profile.components for name in component.rules}
    return next(
        (
            rule.name
            for rule in CATALOG
            if rule.supersedes and rule.name in excused and old.activate(rule).suppressible
            if (now := _active(new, rule)) and not now.suppressible
        ),
        "",
    )


def _excusable_silencer(old: Policy, new: Policy) -> str:
    """Return a rule that is new, silences others, and may be excepted by GpuExceptions."""
    excusable = {name for limits in new.gpu_exception_limits for name in limits.rules}
    return next(
        (
            rule.name
            for rule in CATALOG
            if rule.supersedes and rule.name in excusable
            if _active(new, rule) and not _active(old, rule)
        ),
        "",
    )


def _unused_character(*policies: Policy) -> str:
    """Return a character that no pattern of `policies` has."""
    return unused_character(
        pattern
        for policy in policies
        for patterns in _pattern_lists(policy)
        for pattern in patterns
    )


def _pattern_lists(policy: Policy) -> Iterator[tuple[str, ...]]:
    for exception in policy.exceptions:
        for fact in FACTS:
            yield getattr(exception, fact)
    for limits in policy.gpu_exception_limits:
        yield limits.namespaces
    for component in policy.profile.components:
        yield from (component.namespaces, component.service_accounts, component.images)


_SETTINGS = (
    ("workloads", "deny", "workloads whose pods are refused are no longer refused themselves"),
    (
        *("workloads", "fix"),
        "the templates of workloads are no longer fixed, and what only needs a fix is not refused",
    ),
    ("on_rule_error", "deny", "an object is admitted when a rule of gpuward itself fails"),
)


def _loosened_settings(old: Policy, new: Policy) -> list[str]:
    """Return what the new policy lets through by its own settings, in words."""
    found = []
    for field, value, effect in _SETTINGS:
        before, after = getattr(old, field), getattr(new, field)
        if before == value != after:
            key = "onRuleError" if field == "on_rule_error" else field
            found.append(f"{key}: {before} -> {after}: {effect}")
    return found + list(_loosened_limits(old, new))


def _loosened_limits(old: Policy, new: Policy) -> Iterator[str]:
    """Yield what owners of namespaces may accept themselves, and could not before."""
    if not new.gpu_exception_limits:
        return
    joker = _unused_character(old, new)
    refused = {
        rule.name
        for rule in CATALOG
        if any(any(treatment(_active(old, rule), raw)) for raw in _raw_findings(rule.name))
    }
    for limits in new.gpu_exception_limits:
        for rule in limits.rules:
            for pattern in limits.namespaces:
                if rule in refused and not any(
                    _allows(before, limits, rule, pattern.replace("*", joker))
                    for before in old.gpu_exception_limits
                ):
                    approval = "with" if limits.needs_approval else "without"
                    yield (
                        f"gpuExceptions: owners of the namespaces {pattern} may make exceptions "
                        f"to {rule} for {limits.max_days} days, {approval} approval"
                    )


def _allows(before: GpuExceptionLimits, now: GpuExceptionLimits, rule: str, place: str) -> bool:
    return (
        before.covers(rule, place)
        and before.max_days >= now.max_days
        and (now.needs_approval or not before.needs_approval)
    )


def _notes(old: Policy, new: Policy) -> list[str]:
    """The differences that only the linter knows, in words."""
    notes = [
        f"only the linter reads {key}, which differs: it is no part of the claim"
        for key, field in (("perPath", "per_path"), ("lint", "lint"))
        if getattr(old, field) != getattr(new, field)
    ]
    freed = [
        rule.name
        for rule in CATALOG
        if (before := _active(old, rule)) and (after := _active(new, rule))
        if after.suppressible and not before.suppressible
    ]
    if freed:
        more = f" and {len(freed) - 1} more rules" if len(freed) > 1 else ""
        notes.append(
            f"comments in files may suppress {freed[0]}{more}: only the linter reads them, so it "
            "is no part of the claim"
        )
    return notes
