"""The pods of the model, what gpuward decides about them, and what their containers get.

For each pod that mode `deny` admits, `Proof.unexplained` compares what its containers get on every
node with what they asked for, and with the rows of docs/coverage.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from policies.loading import load_policy
from policies.policy import Policy
from rules.engine.fixing import fix
from rules.engine.rule_set import RuleSet
from rules.finding import Action
from rules.profile.context import Context
from tests.testkit.cases import TODAY
from tests.testkit.container_runtime.executed import pods
from tests.testkit.container_runtime.node import DEVICES, Answer, Container, Settings
from tests.testkit.container_runtime.pods import containers
from tests.testkit.coverage.table import strict_policy
from tests.testkit.proof.model import FEATURES, GPUS, ROWS, Feature, manifest
from tests.testkit.proof.toolkits import SETTINGS, Toolkits, equivalent, reduced

Features = tuple[Feature, ...]
_DEFAULT = "apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [nvidia]\n"
POLICIES = {"default": _DEFAULT, "strict": f"{_DEFAULT}{strict_policy()}"}
"""The policies of the model, as docs/coverage.md has them."""
_CDI = "cdi.k8s.io/"
_NO_DEVICES = frozenset({"void", "ALL"})  # no node has them, so libnvidia-container stops
_NODES = 2 * len(SETTINGS)  # each configuration, without and with annotations of the pod
EVERY_NODE = (1 << _NODES) - 1


class Asked(NamedTuple):
    """A container of an admitted pod, for the runtime."""

    container: Container
    """Without annotations of the pod."""
    with_annotations: Container
    """As a runtime makes it that passes on annotations of the pod, such as CRI-O."""
    counted: frozenset[str]


class Found(NamedTuple):
    """What a container gets, by node as bits."""

    uncounted: Mapping[str, int]
    """The nodes on which it gets devices that are not counted for it, by their kind."""
    lists_devices: int
    """The nodes on which its list of visible devices is not empty, also where the settings of the
    toolkit do not count it: version 1.17 gives other devices there all the same."""


class Decision(NamedTuple):
    """What mode `deny` does with a pod."""

    asked: tuple[Asked, ...]
    """Its containers; none if it is refused."""
    rules: frozenset[str]
    """The rules that reported anything."""


def features_of(size: int) -> Iterator[Features]:
    """Yield all sets of `size` features of different dimensions."""
    for chosen in itertools.combinations(FEATURES, size):
        if len({feature.dimension for feature in chosen}) == size:
            yield chosen


@cache
def policy(name: str) -> Policy:
    """A policy of the model."""
    return load_policy(POLICIES[name], f"the {name} policy")


@cache
def rule_set(policy_name: str, without: str = "") -> RuleSet:
    """The rules of a policy; without one of them, the planted fault that it is missing."""
    rules = policy(policy_name).rule_set()
    kept = tuple(active for active in rules.rules if active.rule.name != without)
    return rules if len(kept) == len(rules.rules) else rules._replace(rules=kept)


def decide(chosen: Features, policy_name: str, without: str = "") -> Decision:
    """Return what mode `deny` does with a pod that a user creates."""
    user = next((each.user for each in chosen if each.user != "jane"), "jane")
    context = Context(today=TODAY, namespace="ml", user=user, operation="CREATE")
    result = fix(manifest(chosen), rule_set(policy_name, without), context)
    remaining = result.remaining
    assert not remaining.failures, (chosen, remaining.failures)
    rules = frozenset(finding.rule for finding in (*result.fixed, *remaining.findings))
    if any(finding.action is Action.DENY for finding in remaining.findings):
        return Decision((), rules)
    return Decision(tuple(_asked(result.manifest, chosen)), rules)


def _asked(fixed: object, chosen: Features) -> Iterator[Asked]:
    image = {name: value for each in chosen for name, value in each.image.items()}
    config = {name: data for each in chosen for name, data in each.config.items()}
    for pod in pods(fixed, policy("default").profile):
        passed = tuple((key, str(pod.annotations[key])) for key in pod.annotations if _CDI in key)
        made = (containers(pod, variables, config) for variables in ({}, image))
        for other, main in zip(*made, strict=True):
            found = main if main.view.name == "main" else other
            plain = found.container
            yield Asked(plain, plain._replace(annotations=passed), found.counted)


class Leak(NamedTuple):
    """A pod that is admitted and gets more than it asked for, on some nodes."""

    features: Features
    kinds: Mapping[str, int]
    """The nodes on which it gets devices of a kind, as bits."""


class Proof:
    """What the real toolkits give to containers, each asked once."""

    def __init__(self, toolkits: Toolkits) -> None:
        self._toolkits = toolkits
        self._known: set[Container] = set()
        self._answers: dict[tuple[Container, Settings], Answer] = {}
        self._found: dict[Asked, Found] = {}
        self.explained_by: set[str] = set()
        """The rows of docs/coverage.md that explained something."""

    @property
    def asked(self) -> int:
        """The number of containers that the toolkits were asked about."""
        return len(self._known)

    @property
    def answers(self) -> int:
        """The number of answers of the toolkits."""
        return len(self._answers)

    def learn(self, decisions: Iterable[Decision]) -> None:
        """Ask the toolkits about containers that were not asked about before."""
        made = {
            container
            for decision in decisions
            for asked in decision.asked
            for container in (asked.container, asked.with_annotations)
            if not container.is_privileged
        }
        new = set(map(reduced, made)) - self._known
        for settings in SETTINGS:
            ordered = [each for each in sorted(new) if equivalent(each, settings) == settings]
            if ordered:
                found = self._toolkits.ask(ordered, settings)
                self._answers |= {
                    (each, settings): answer for each, answer in zip(ordered, found, strict=True)
                }
        self._known |= new

    def answer(self, container: Container, settings: Settings) -> Answer:
        """Return what a container gets that the toolkits were asked about, or one like it."""
        alike = reduced(container)
        return self._answers[alike, equivalent(alike, settings)]

    def gets(self, decision: Decision) -> dict[str, int]:
        """Return on which nodes a pod gets uncounted devices, by their kind."""
        found: dict[str, int] = {}
        for asked in decision.asked:
            for kind, nodes in self._gets(asked).uncounted.items():
                found[kind] = found.get(kind, 0) | nodes
        return found

    def _gets(self, asked: Asked) -> Found:
        if asked not in self._found:
            self._found[asked] = self._find(asked)
        return self._found[asked]

    def _find(self, asked: Asked) -> Found:
        if asked.container.is_privileged:
            return Found(dict.fromkeys(_EVERY_KIND, EVERY_NODE), EVERY_NODE)
        found: dict[str, int] = {}
        lists_devices = 0
        made = (asked.container, asked.with_annotations)
        for node, (container, settings) in enumerate(itertools.product(made, SETTINGS)):
            answer = self.answer(container, settings)
            if any(_lists_devices(self.answer(container, read)) for read in _readings(settings)):
                lists_devices |= 1 << node
            if answer.gpus & _NO_DEVICES:
                continue
            kinds = set(answer.others)
            if answer.gpus - asked.counted:
                kinds.add(GPUS)
            for kind in kinds:
                found[kind] = found.get(kind, 0) | 1 << node
        return Found(found, lists_devices)

    def unexplained(
        self,
        decided: Mapping[Features, Decision],
        policy_name: str,
        of: Callable[[Features], Decision],
    ) -> Iterator[Leak]:
        """Yield the admitted pods that get a device for which no row of docs/coverage.md stands.

        `of` decides about a pod of fewer features.
        """
        for chosen, decision in decided.items():
            left = {}
            for kind, nodes in self.gets(decision).items():
                explained = 0
                for row in ROWS:
                    if kind in row.gives and nodes & ~explained:
                        used = row.used(chosen, policy_name)
                        if used is None:
                            continue
                        if row.is_beside:
                            others = tuple(each for each in chosen if each not in used)
                            by_row = nodes & self._gets_beside(kind, decision, of(others))
                        else:
                            by_row = nodes & self.gets(of(used)).get(kind, 0)
                        explained |= by_row
                        if by_row:
                            self.explained_by.add(row.name)
                if nodes & ~explained:
                    left[kind] = nodes & ~explained
            if left:
                yield Leak(chosen, left)

    def _gets_beside(self, kind: str, decision: Decision, others: Decision) -> int:
        """The nodes on which no container gets devices of a kind alone.

        `others` is the pod without the features of the row, in which the same container gets a GPU
        or the driver.
        """
        if not others.asked:
            return 0  # the pod is refused without these features, and admitted with them
        alone = 0
        for with_row, without in zip(decision.asked, others.asked, strict=True):
            gets = self._gets(with_row).uncounted.get(kind, 0)
            alone |= gets & ~self._gets(without).lists_devices
        return EVERY_NODE & ~alone


def _readings(settings: Settings) -> Iterator[Settings]:
    """Yield the settings, and those with which the same toolkit reads the variable in any case."""
    yield settings
    accepting = settings._replace(env_when_unprivileged=True)
    yield accepting
    yield accepting._replace(swarm_resource="")


def _lists_devices(answer: Answer) -> bool:
    """Return whether the list of devices of a container is not empty: only then can it fail."""
    return bool(answer.gpus or answer.others or answer.has_driver or answer.error)


def _kinds() -> Collection[str]:
    names = (name.partition("/")[0] for name in DEVICES.values())
    return {GPUS, *(name for name in names if not name.startswith("nvidia") or "-" in name)}


_EVERY_KIND = frozenset(_kinds())
