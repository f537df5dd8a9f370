"""The match condition covers what every rule needs, and the chart adds names of custom profiles."""

from __future__ import annotations

import re
from typing import Any

import pytest

from policies.bundles import BUNDLES, bundle
from rules.base import traits
from rules.catalog.index import CATALOG
from rules.finding import Action
from rules.relevance.expressions import LONGEST, MOST, MOST_PREFERRED
from tests.testkit.match_conditions.chart_condition import chart_condition
from tests.testkit.paths import DOCS
from tools.chart_files import match_condition
from webhook.match_conditions import MOST_OWN_NAMES, UncoveredError, is_about_every_pod

MANUAL = DOCS / "matching.md"
PLACEHOLDER = re.compile("%[A-Za-z]+%")
ABOUT_EVERY_POD = [rule.name for rule in CATALOG if is_about_every_pod(rule)]
VARIABLE = re.compile("[A-Z][A-Z0-9_]{3,}")


def test_a_rule_that_needs_a_trait_without_a_condition_is_an_error() -> None:
    known = CATALOG[0]
    new = known._replace(name="new", needs=(traits.HOST_NAMESPACE,))
    with pytest.raises(UncoveredError, match=r"new .*HOST_NAMESPACE.*in CEL beside its Python"):
        match_condition((*CATALOG, new))
    with pytest.raises(UncoveredError, match="new"):
        match_condition((*CATALOG, known._replace(name="new", needs=())))
    both = known._replace(name="new", needs=(traits.HOST_NAMESPACE, traits.GPU_RESOURCE))
    assert match_condition((*CATALOG, both)) == match_condition()


def test_no_bundle_turns_on_a_rule_about_every_pod() -> None:
    """The chart looks for such rules in the policy alone."""
    settings = [item for name in BUNDLES for item in bundle(name)["rules"].items()]
    on = {name for name, own in settings if own.get("action", "off") != "off"}
    assert [rule.action for rule in CATALOG if is_about_every_pod(rule)] == [Action.OFF]
    assert on.isdisjoint(ABOUT_EVERY_POD)


def test_a_rule_about_every_pod_that_is_off_leaves_the_condition() -> None:
    for action in (False, "off"):
        policy = {"rules": {ABOUT_EVERY_POD[0]: {"action": action}}}
        assert chart_condition({"policy": policy}) == chart_condition()


def test_a_new_option_of_a_rule_is_an_error() -> None:
    with pytest.raises(UncoveredError, match=f"{CATALOG[0].name} has the option strict"):
        match_condition((CATALOG[0]._replace(options={"strict": False}), *CATALOG[1:]))


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_the_chart_has_the_condition_that_the_rules_generate(helm: str) -> None:
    without_names = match_condition().replace("%knowsNodes%", "false")
    assert chart_condition(helm=helm) == PLACEHOLDER.sub("", without_names).rstrip("\n")
    for policy in ({}, {"profiles": ["gke"]}, {"rules": {"zero-gpu": {"action": "off"}}}):
        assert chart_condition({"policy": policy}, helm) == chart_condition(helm=helm)


def test_names_of_nodes_count_only_where_the_webhook_knows_them() -> None:
    known = chart_condition({"clusterInventory": {"enabled": True, "nodeNames": True}})
    assert "|| true && !(request.userInfo.username in" in known
    assert "term.?matchFields.orValue([]).size()).sum() > 50" in known, "it has a bound"
    for inventory in ({"enabled": True, "nodes": True}, {"nodeNames": True}):
        assert "|| true && " not in chart_condition({"clusterInventory": inventory})


@pytest.mark.parametrize(
    "values",
    [
        {"registration": {"matchConditions": False}},
        {"policy": {"voidEveryContainer": True}},
        *({"policy": {"rules": {name: {"action": "warn"}}}} for name in ABOUT_EVERY_POD),
        {"policyText": f"rules: {{{ABOUT_EVERY_POD[0]}: {{action: deny}}}}\n"},
    ],
)
def test_there_is_no_condition_if_all_pods_must_be_evaluated(values: Any) -> None:
    assert chart_condition(values) == ""


CUSTOM_PROFILES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "annotations of fractions": (
        {"fractions": [{"annotations": ["example.com/share"]}]},
        ['|| key == "example.com/share"'],
    ),
    "annotations of schedulers": (
        {"schedulers": [{"name": "s", "annotations": ["example.com/queue"]}]},
        ['|| key == "example.com/queue"'],
    ),
    "variables": (
        {"alternativeVariables": ["CARDS", "OUR_*_CARDS"]},
        ['|| variable.name == "CARDS"', '|| variable.name.startsWith("OUR_")'],
    ),
    "variables of makers": (
        {"visibleDevices": {"OUR_VISIBLE": {"maker": "Ours", "vendors": ["ours"]}}},
        ['|| variable.name == "OUR_VISIBLE"'],
    ),
    "labels of nodes": (
        {"nodeLabels": {"example.com/pool": ["a"], "example.com/card-*": []}},
        [
            *['|| key == "example.com/pool"'] * 2,
            *['|| key.startsWith("example.com/card-")'] * 2,
            *['|| expression.key == "example.com/pool"'] * 2,
            *['|| expression.key.startsWith("example.com/card-")'] * 2,
            '|| toleration.key == "example.com/pool"',
            '|| toleration.key.startsWith("example.com/card-")',
        ],
    ),
    "modes of nodes": (
        {"nodeModes": {"example.com/mode": {"a": []}}},
        [
            *['|| key == "example.com/mode"'] * 2,
            *['|| expression.key == "example.com/mode"'] * 2,
            '|| toleration.key == "example.com/mode"',
        ],
    ),
    "taints of nodes": (
        {"taints": [{"resources": ["nvidia.com/gpu"], "key": "example.com/cards"}]},
        ['|| toleration.key == "example.com/cards"'],
    ),
    "runtime classes": ({"runtimeClasses": ["ours"]}, ['|| name == "ours"']),
    "a name that would end a text": ({"runtimeClasses": ['"<\\']}, ['|| name == "\\"\\u003c\\\\"']),
}


@pytest.mark.parametrize("place", ["profiles", "policy"])
@pytest.mark.parametrize("name", CUSTOM_PROFILES)
def test_the_chart_adds_the_names_of_custom_profiles(name: str, place: str) -> None:
    fields, tests = CUSTOM_PROFILES[name]
    profiles = ["nvidia", {"name": "ours", **fields}]
    values = {"profiles": profiles} if place == "profiles" else {"policy": {"profiles": profiles}}
    found = chart_condition(values)
    rest = found
    for test in set(tests):
        assert rest.count(f" {test}") == tests.count(test), test
        rest = rest.replace(f" {test}", "")
    assert rest == chart_condition()


def test_too_many_names_of_custom_profiles_remove_the_condition() -> None:
    def with_own_names(number: int) -> dict[str, Any]:
        names = [f"OUR_{n}_*" for n in range(number)]
        return {"profiles": [{"name": "ours", "alternativeVariables": names}]}

    assert chart_condition(with_own_names(MOST_OWN_NAMES)).count("OUR_") == MOST_OWN_NAMES
    assert chart_condition(with_own_names(MOST_OWN_NAMES + 1)) == ""


def test_the_manual_names_every_bound() -> None:
    text = MANUAL.read_text(encoding="utf-8")
    bounds = [int(number) for number in re.findall(r"^\| .* \| (\d+) \|$", text, re.MULTILINE)]
    assert sorted(bounds) == sorted([*MOST.values(), *MOST_PREFERRED.values(), *LONGEST.values()])
    assert f"more than {MOST_OWN_NAMES} names" in text
