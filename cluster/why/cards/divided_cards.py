"""The choice of cards by the schedulers that divide them: HAMi, and Volcano with its vGPUs.

Each container takes some cards, and memory and cores of each. A scheduler chooses for one container
after the other, in an order that its policy says: which cards a first one gets may decide about the
next, and then the policy does. `tests/data/divided_cards.yaml` has what the source says.

Source: Project-HAMi/HAMi pkg/device/nvidia/device.go, Fit; volcano-sh/volcano
pkg/scheduler/api/devices/nvidia/vgpu/utils.go, checkNodeGPUSharingPredicateAndScore
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from cluster.accounting.account import NodeLoad
from cluster.accounting.nodes import Card, cards_of
from cluster.accounting.pod_requests import amount_of, whole
from cluster.accounting.shares import whole_number
from rules.base.json_values import as_object, as_objects, as_text
from rules.engine.bounds import StepLimit, TooManyStepsError

_ALL = 100
"""Percent of the memory or of the cores of a card."""
_MIG = "mig"
_MAX_CHOICES = 2_000
# For a pod: more containers, or cards that are looked at, make the answer not known.
_MAX_CONTAINERS, _MAX_STEPS = 100, 200_000


class _System(NamedTuple):
    """The names by which a scheduler is asked for parts of cards."""

    cards: str
    memory: str
    percentage: str
    cores: str
    use_uuid: str
    avoid_uuid: str
    mode: str
    is_hami: bool


_USE_TYPE, _AVOID_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
_HAMI = _System(
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/use-gpuuuid",
    "nvidia.com/nouse-gpuuuid",
    "nvidia.com/vgpu-mode",
    is_hami=True,
)
_VOLCANO = _System(
    "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-memory-percentage",
    "volcano.sh/vgpu-cores",
    "volcano.sh/vgpu-use-gpuuuid",
    "volcano.sh/vgpu-nouse-gpuuuid",
    "volcano.sh/vgpu-mode",
    is_hami=False,
)
PERCENTAGES = {system.memory: system.percentage for system in (_HAMI, _VOLCANO)}
"""The resources that are percentages of others."""
_MUTEX, _POLICY = "mutex", "hami.io/gpu-scheduler-policy"
_MIG_DEVICES = "which MIG devices its scheduler can still make"
_OTHERS = "the pod selects other cards, by their type, UUID or mode"
_CORDON, _NUMA = "hami.io/device-cordon", "nvidia.com/numa-bind"
_SPREAD = "volcano.sh/vgpu-podgroup-policy"


SELECTING = (
    *(_USE_TYPE, _AVOID_TYPE, _POLICY, _NUMA, _SPREAD),
    *(_HAMI.use_uuid, _HAMI.avoid_uuid, _HAMI.mode),
    *(_VOLCANO.use_uuid, _VOLCANO.avoid_uuid, _VOLCANO.mode),
)
"""The annotations by which a pod chooses cards."""


class CardState(NamedTuple):
    """A card that pods share, and what they have of it; `tasks` is how many containers."""

    card: Card
    memory: int
    cores: int
    tasks: int


class _Part(NamedTuple):
    """The request of a container: MiB of each of its `cards`, or percent if `memory` is 0."""

    cards: int
    memory: int
    percent: int
    cores: int


class Choice(NamedTuple):
    """The answer of a node: `reason` why it has no cards, `doubt` what would have to be known."""

    reason: str = ""
    doubt: str = ""


def divided_cards(node: Mapping[str, Any], load: NodeLoad) -> Mapping[str, tuple[CardState, ...]]:
    """The cards of a node that HAMi or Volcano divides, by the resource of their memory."""
    found: dict[str, list[CardState]] = {}
    cordoned = as_text(as_object(as_object(node.get("metadata")).get("annotations")).get(_CORDON))
    cordon = {one.strip() for one in cordoned.split(",")}
    for card in cards_of(node, with_sick=True):
        for system in (_HAMI, _VOLCANO):
            if system.memory not in card.amounts:
                continue
            cards = found.setdefault(system.memory, [])
            if not (system.is_hami and card.card in cordon):
                shares = load.shares
                state = CardState(
                    card,
                    int(shares.get((card.card, system.memory), 0)),
                    int(shares.get((card.card, system.cores), 0)),
                    load.tasks[card.card],
                )
                cards.append(state)
    return {name: tuple(cards) for name, cards in found.items()}


class CardChooser:
    """Asks whether nodes have the cards for a pod.

    `exists` says whether the pod has passed the webhook of HAMi, which may add to it.
    """

    def __init__(self, pod: Mapping[str, Any], *, exists: bool) -> None:
        metadata, self._spec = as_object(pod.get("metadata")), as_object(pod.get("spec"))
        self._annotations = as_object(metadata.get("annotations"))
        self._known: dict[tuple[Any, ...], str] = {}
        self._limit = StepLimit(_MAX_STEPS)
        self._lists: dict[str, frozenset[str]] = {}
        self._models: dict[tuple[bool, str], bool] = {}
        self._parts = {
            system.memory: [
                [*_parts(self._spec, field, system, exists=exists)]
                for field in ("containers", "initContainers")
            ]
            for system in (_HAMI, _VOLCANO)
        }

    def choose(self, node: Mapping[str, tuple[CardState, ...]], load: NodeLoad) -> Choice:
        """Return whether a node with these cards and this load has them for the pod.

        Nothing is said about a pod that asks for no part of a card.
        """
        for system in (_HAMI, _VOLCANO):
            parts, initial = self._parts[system.memory]
            cards = node.get(system.memory)
            if cards is not None and (parts or initial):
                found = self._of_system(system, parts, initial, cards)
                if not (found.reason or found.doubt) and system.memory in load.unplaced:
                    return Choice(doubt=f"how much {system.memory} is free on one card")
                # Volcano counts the first such container alone when it reads the pod again.
                if not system.is_hami and found.reason and load.doubled:
                    return Choice(doubt="how Volcano counts several containers on one card")
                return found
        return Choice()

    def _of_system(  # noqa: PLR0911  # one for each answer
        self,
        system: _System,
        parts: Sequence[_Part],
        initial: Sequence[_Part],
        cards: Sequence[CardState],
    ) -> Choice:
        selected = [one for one in cards if self._is_selected(system, one.card)]
        if not selected:
            return Choice(_OTHERS if cards else "an administrator has cordoned all of its cards")
        if all(one.card.mode == _MIG for one in selected):
            return Choice(doubt=_MIG_DEVICES)
        is_alone = system.is_hami and _MUTEX in as_text(self._annotations.get(_POLICY))
        plain = [one for one in selected if one.card.mode != _MIG and one.card.is_healthy]
        groups = [parts, *([one] for one in initial if system.is_hami)]
        results = [self._fits(group, plain, is_alone=is_alone) for group in groups]
        if "cannot" in results:
            if any(one.card.mode == _MIG for one in selected):
                return Choice(doubt=_MIG_DEVICES)
            if len(plain) < len(selected):
                return Choice(doubt="whether a card that is not healthy is given to it")
            return Choice(_why_not(groups[results.index("cannot")], plain, is_alone=is_alone))
        if "not known" in results:
            return Choice(doubt="which cards its containers get, as the scheduler's policy decides")
        if self._annotations.get(_NUMA) == "true" or self._annotations.get(_SPREAD) == "spread":
            return Choice(doubt="which cards are near each other, or apart from its group's")
        return Choice()

    def _fits(self, parts: Sequence[_Part], cards: Sequence[CardState], *, is_alone: bool) -> str:
        """Return the result of `_fits`, found once for cards that are alike: nodes often are."""
        key = tuple(parts), tuple(sorted(map(_numbers, cards))), is_alone
        if key not in self._known:
            self._known[key] = _fits(parts, cards, self._limit, is_alone=is_alone)
        return self._known[key]

    def _is_selected(self, system: _System, card: Card) -> bool:
        """Return whether annotations of the pod allow a card."""
        uses, avoids = (self._listed(name) for name in (system.use_uuid, system.avoid_uuid))
        if (uses and card.card not in uses) or card.card in avoids:
            return False
        mode = as_text(self._annotations.get(system.mode))
        if mode and (card.mode or "hami-core") not in mode:
            return False
        key = system.is_hami, card.model.upper()
        if key not in self._models:
            self._models[key] = self._allows_model(*key)
        return self._models[key]

    def _allows_model(self, is_hami: bool, model: str) -> bool:  # noqa: FBT001  # parts of a key
        types, others = (
            [name.upper() for name in self._listed(key)] for key in (_USE_TYPE, _AVOID_TYPE)
        )
        if types and not any(name in model for name in types):
            return False
        # Volcano looks at what to avoid only if nothing is to be used.
        is_read = is_hami or not types
        return not (is_read and any(name in model for name in others))

    def _listed(self, key: str) -> frozenset[str]:
        if key not in self._lists:
            listed = as_text(self._annotations.get(key)).split(",")
            self._lists[key] = frozenset(one.strip() for one in listed if one.strip())
        return self._lists[key]


def _parts(
    spec: Mapping[str, Any], field: str, system: _System, *, exists: bool
) -> Iterator[_Part]:
    """Yield the request of each container, as the scheduler and HAMi's webhook read it."""
    for _, container in as_objects(spec.get(field)):
        resources = as_object(container.get("resources"))
        limits, requests = (as_object(resources.get(key)) for key in ("limits", "requests"))
        asked = {**requests, **limits}
        names = (system.memory, system.percentage, system.cores)
        of_cards = asked if system.is_hami else limits
        if system.cards in of_cards:
            cards = _number(of_cards[system.cards])
        elif any(name in limits for name in (names if system.is_hami else names[:1])):
            cards = 1  # as HAMi's webhook sets it, and Volcano reads it
        else:
            continue
        memory, percent, cores = (_number(asked.get(name)) for name in names)
        has_percent = system.percentage in asked and (percent > 0 or not system.is_hami)
        if not has_percent:
            percent = _ALL if not memory else 0
        elif not system.is_hami:
            memory = 0  # Volcano takes the percentage if both are there
        is_whole = not exists and system.is_hami and system.cores not in asked
        if is_whole and not memory and percent == _ALL:
            cores = _ALL  # as HAMi's webhook sets it since 2.7
        if cards:
            yield _Part(cards, memory, min(percent, _ALL), min(cores, _ALL))


def _number(value: object) -> int:
    return whole_number(as_text(value)) if isinstance(value, str) else whole(amount_of(value))


def _asked(part: _Part, state: CardState) -> int:
    """The MiB that a container takes of a card."""
    total = _total(state)
    return part.memory or total * part.percent // _ALL


def _total(state: CardState) -> int:
    return next(amount for name, amount in state.card.amounts.items() if "mem" in name)


def _numbers(state: CardState) -> tuple[int, ...]:
    """The numbers that decide about a card."""
    totals = state.card.slots, _total(state), _total_cores(state)
    return state.memory, state.cores, state.tasks, *totals


def _total_cores(state: CardState) -> int:
    return next(amount for name, amount in state.card.amounts.items() if "cores" in name)


def _obstacle(part: _Part, state: CardState, *, is_alone: bool) -> str:  # noqa: PLR0911  # the same
    """Return why a card cannot be given to a container; empty if it can."""
    total, cores = _total(state), _total_cores(state)
    if state.card.slots <= state.tasks:
        return f"{state.tasks} containers share it, which is the most"
    if is_alone and state.tasks:
        return "others use it"
    if total - state.memory < _asked(part, state):
        return f"{max(total - state.memory, 0)} of {total} MiB are free"
    if cores - state.cores < part.cores:
        return f"{max(cores - state.cores, 0)} of {cores} % of its cores are free"
    if part.cores == _ALL and cores == _ALL and state.tasks:
        return "others use it, and the pod wants all of its cores"
    if cores and state.cores == cores and not part.cores:
        return "all of its cores are taken"
    return ""


def _fits(
    parts: Sequence[_Part], cards: Sequence[CardState], limit: StepLimit, *, is_alone: bool
) -> str:
    """`can` if any choice of cards does, `cannot` if none does; else `not known`."""
    if len(parts) > _MAX_CONTAINERS:
        return "not known"
    results = set()
    try:
        for number, fits in enumerate(_choices(parts, tuple(cards), limit, is_alone=is_alone)):
            results.add(fits)
            if len(results) > 1 or number > _MAX_CHOICES:
                return "not known"
    except TooManyStepsError:
        return "not known"
    return "can" if results == {True} else "cannot"


def _choices(
    parts: Sequence[_Part], cards: tuple[CardState, ...], limit: StepLimit, *, is_alone: bool
) -> Iterator[bool]:
    """Yield, for each choice of cards, whether all containers get some.

    Raises TooManyStepsError.
    """
    if not parts:
        yield True
        return
    limit.take(len(cards))
    part, *others = parts
    fitting = [
        number for number, one in enumerate(cards) if not _obstacle(part, one, is_alone=is_alone)
    ]
    if len(fitting) < part.cards:
        yield False
        return
    if not others:
        yield True
        return
    seen: set[tuple[tuple[Any, ...], ...]] = set()
    for number, chosen in enumerate(combinations(fitting, part.cards)):
        if number > _MAX_CHOICES:
            yield from (True, False)  # too many to say
            return
        limit.take(len(chosen))
        alike = tuple(sorted(_numbers(cards[n]) for n in chosen))
        if alike in seen:
            continue
        seen.add(alike)
        left = tuple(
            one._replace(
                memory=one.memory + _asked(part, one),
                cores=one.cores + part.cores,
                tasks=one.tasks + 1,
            )
            if place in chosen
            else one
            for place, one in enumerate(cards)
        )
        yield from _choices(others, left, limit, is_alone=is_alone)


def _why_not(parts: Sequence[_Part], cards: Sequence[CardState], *, is_alone: bool) -> str:
    """The reason of the first container that finds no cards by itself; or that all together do."""
    for part in parts:
        reasons = Counter(_obstacle(part, one, is_alone=is_alone) for one in cards)
        if reasons.pop("", 0) >= part.cards:
            continue
        memory = f"{part.memory} MiB" if part.memory else f"{part.percent} % of the memory"
        cores = f" and {part.cores} % of the cores" if part.cores else ""
        many = f"{part.cards} cards" if part.cards > 1 else "a card"
        if not reasons:
            return f"a container asks for {part.cards} cards, and there are {len(cards)}"
        said = "; ".join(f"of {n} of them {why}" if n > 1 else why for why, n in reasons.items())
        return f"a container asks for {memory}{cores} of {many}, and of those {said}"
    return "each of its containers finds cards, and no choice of them does for all together"
