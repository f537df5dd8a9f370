"""The match condition: by it API servers look no further at pods that no rule can be about.

The condition is one CEL expression, made of the `needs` of rules and of the tests of their traits
(`rules.relevance`). It is true for every pod in which one of these rules could find something.

- The chart has the condition of all rules and all built-in profiles in its webhook entries: it does
  not depend on the policy. At `%name%` the chart inserts the names that only the profiles in its
  values list, and what concerns a rule where the webhook has an inventory.
- An exported policy has the condition of its own rules and of its policy's profile. It tests what
  these rules need, and no more: one about privileged containers passes over all other pods.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from rules.base import traits
from rules.profile.profile import Profile
from rules.relevance import containers, nodes, pods
from rules.relevance.expressions import (
    CONTAINERS,
    MOST,
    Scope,
    TraitTests,
    any_of,
    names_of_profiles,
    tests_of,
)
from rules.rule import Rule

# What stands where in the condition. The first test passes over objects that are no pods.
SECTIONS: tuple[tuple[str, TraitTests], ...] = (
    ("Resources of the pod itself", pods.RESOURCE_TESTS),
    ("Annotations and labels", pods.METADATA_TESTS),
    ("Labels of nodes", nodes.LABEL_TESTS),
    ("Preferred nodes and tolerations of privileged containers", nodes.HINT_TESTS),
    ("Runtime classes", pods.RUNTIME_CLASS_TESTS),
    ("Paths of the node", pods.HOST_PATH_TESTS),
)


def _union(*tables: TraitTests) -> int:
    united = 0
    for table in tables:
        for one, _ in table:
            united |= one
    return united


# The condition of the chart is true for every pod in which a rule finds something due to one of
# these traits.
COVERED = _union(containers.TESTS, *(table for _, table in SECTIONS))
COVERED |= containers.COVERED_BY_VARIABLES | nodes.COVERED_BY_HINTS
COVERED |= traits.QUOTA | traits.CLAIM_OBJECT | traits.WHOLE_OBJECTS  # which are no pods
COVERED |= traits.EPHEMERAL_CONTAINER  # only with resources, which the API server refuses there
# What the condition of an exported policy can test besides.
COVERED_IN_POLICIES = _union(containers.TESTS_IN_POLICIES, pods.TESTS_IN_POLICIES)
# Traits of COVERED whose test in CEL is narrower than the trait. Where the trait is there and the
# test is false, rules find something only in pods that have a GPU as well.
NOT_WITHOUT_A_GPU = nodes.NOT_WITHOUT_A_GPU | traits.POD_RESOURCES
# Those whose tests count what an exported policy counts.
SIZED_TRAITS = traits.GPU_VARIABLE | traits.DEVICE_LIST_MOUNT | traits.HOST_PATH
# Options of rules that the condition allows for. With `every_container` a rule finds something in
# any pod, so the chart registers no condition where the policy sets it. No other option lets a rule
# find something without its `needs`.
OPTIONS = frozenset(
    {
        *("every_container", "labels", "max_devices", "namespaces", "node_devices", "nodes"),
        *("controllers", "repositories", "require_digest", "reserved", "writers"),
    }
)
# Names of resources in the limits of all containers; only exported policies count them.
MOST_RESOURCES = 100
# How many names the profiles of a user may add to those of the built-in ones. With more, there is
# no condition.
MOST_OWN_NAMES = 50


class UncoveredError(ValueError):
    """The condition does not send all pods that a rule is about; the message says what to add."""


def condition(
    catalog: Iterable[Rule[Any]],
    profiles: Iterable[Profile],
    *,
    has_places: bool = False,
    with_large_pods: bool = False,
) -> str:
    """Return the condition for these rules and profiles as CEL text.

    With `has_places` it has places such as `%variables%`, where the chart inserts further names.
    With `with_large_pods` it is also true for every pod that has more of something than MOST.

    Rules about every pod are left out: where one is on, there is no condition.

    Raises UncoveredError if the condition would not be true for every pod that a rule is about.
    """
    needed = _needed(itertools.filterfalse(is_about_every_pod, catalog), whole=has_places)
    if with_large_pods:
        needed |= SIZED_TRAITS
    scope = Scope(names_of_profiles(profiles), needed, has_places)
    tests: list[tuple[str, Iterable[str]]] = [
        ("Other kinds than pods", ['request.resource.resource != "pods"']),
        ("Containers", containers.container_tests(scope)),
        *((title, tests_of(table, scope)) for title, table in SECTIONS),
    ]
    if not has_places:
        tests.append(("Other fields", tests_of(pods.TESTS_IN_POLICIES, scope)))
    if with_large_pods:
        tests.append(("More than is evaluated", _sizes()))
    found = ((title, any_of(texts)) for title, texts in tests)
    return "".join(f"// {title}\n|| {text}\n" for title, text in found if text).replace(
        "|| ", "", 1
    )


def is_about_every_pod(rule: Rule[Any]) -> bool:
    """Return whether `rule` may find something in any pod."""
    return traits.EVERY_POD in rule.needs


def _sizes() -> Iterator[str]:
    """Yield tests of whether a pod has more of something than MOST that no trait is about.

    Of what SIZED_TRAITS are about, their own tests say it.
    """
    resources = "container.?resources.?limits.orValue({}).size()"
    many = f"containers.map(container, {resources}).sum() > {MOST_RESOURCES}"
    yield f"[{CONTAINERS}].exists(containers, {many})"
    yield f"object.metadata.?annotations.orValue({{}}).size() > {MOST['annotations']}"
    yield from nodes.sizes()


def _needed(rules: Iterable[Rule[Any]], *, whole: bool) -> int:
    """Return the traits that the condition of `rules` must test; with `whole` all of COVERED.

    Raises UncoveredError if it would not be true for every pod that a rule is about.
    """
    covered, needed = COVERED, 0
    if not whole:
        covered |= COVERED_IN_POLICIES
    for rule in rules:
        _require_coverage(rule, covered)
        testable = (entry for entry in rule.needs if not entry & ~covered)
        needed |= min(testable, key=_price_of_entry)
    if needed & NOT_WITHOUT_A_GPU:
        needed |= traits.GPU
    return COVERED if whole else needed


def _price_of_entry(entry: int) -> tuple[bool, bool, int]:
    """Return what an entry of `needs` costs: its tests, and that other pods are evaluated.

    Tests of the labels of nodes are long. A test of GPU resources lets in every GPU pod.
    """
    is_of_nodes, is_of_gpus = entry & NOT_WITHOUT_A_GPU, entry & traits.GPU_RESOURCE
    return bool(is_of_nodes), bool(is_of_gpus), entry.bit_count()


def _require_coverage(rule: Rule[Any], covered: int) -> None:
    """Raise UncoveredError if the rule may find something in a pod that the condition omits."""
    unknown = rule.options.keys() - OPTIONS
    if unknown:
        raise UncoveredError(
            f"{rule.name} has the option {min(unknown)}: if no value of it lets the rule find "
            f"something without its `needs`, add it to OPTIONS in webhook/match_conditions.py"
        )
    if any(not entry & ~covered for entry in rule.needs):
        return
    missing = [traits.names_of(entry & ~covered) for entry in rule.needs]
    raise UncoveredError(
        f"API servers would not send every pod that {rule.name} is about. Each entry of its "
        f"`needs` allows a trait that the match condition does not test: {missing}. Write the "
        "test of one in CEL beside its Python in rules/relevance/ and add both to the TESTS there, "
        "or give the rule one more entry in `needs` of which all traits have a test."
    )


def count_own_names(profile: Profile, built_in: Iterable[Profile]) -> int:
    """Return how many names `profile` adds to those of the `built_in` ones."""
    pairs = zip(names_of_profiles([profile]), names_of_profiles(built_in), strict=True)
    return sum(len({*own} - {*known}) for own, known in pairs)
