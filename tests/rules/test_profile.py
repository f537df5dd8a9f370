"""Tests of profiles: patterns, merging, inheritance, and the built-in profiles."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.loading import default_policy
from policies.profiles import ProfileError, built_in_profiles, merged_profile
from policies.validation import policy_schema
from rules.base.caching import MAX_ENTRIES
from rules.base.text_matching import matches, matches_any
from rules.base.traits import GPU_VARIABLE, OTHER_GPU_VARIABLE
from rules.gpu.claims import is_gpu_class
from rules.inventory.inventory import EMPTY_INVENTORY
from rules.profile.platforms.device_attributes import VENDOR_CLASSES
from rules.profile.profile import (
    Component,
    Profile,
    Resource,
    Scheduler,
    Taint,
    VisibleDevices,
    merge_profiles,
)
from rules.relevance.containers import variable_traits

# Every family of resources in the registry, by one name each.
FAMILIES = [
    *("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.shared"),
    *("nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-1c.3g.20gb"),
    "nvidia.com/gpu-10gb",
    *("aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "aliyun.com/gpu"),
    *("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),
    *("huawei.com/Ascend910B", "huawei.com/Ascend910B-memory", "huawei.com/Ascend310P"),
    *("cambricon.com/vmlu", "hygon.com/dcunum", "iluvatar.ai/vgpu", "metax-tech.com/gpu"),
    *("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage"),
    *("volcano.sh/vgpu-cores", "volcano.sh/gpu-memory", "volcano.sh/gpu-number"),
    *("koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory"),
    *("koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu.shared"),
    *("tencent.com/vcuda-core", "tencent.com/vcuda-memory"),
    *("amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"),
    *("google.com/tpu", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"),
    "aws.amazon.com/neurondevice",
    "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
    "deviceclass.resource.kubernetes.io/of-somebody-else",
]
# Names of vendors that are no devices: counts of a node, a priority, a network card.
OTHER_RESOURCES = [
    *("cpu", "memory", "", "*", "nvidia.com", "nvidia.com/", "aliyun.com/gpu-count"),
    *("nvidia.com/priority", "koordinator.sh/rdma", "gpu.intel.com/i915_monitoring"),
    *("rdma/hca_shared_devices_a", "Nvidia.com/GPU", "requests.nvidia.com/gpu"),
]
REQUIRED = ["nvidia", "ack", "ack-registered", "hami", "kai", "volcano", "koordinator"]
REQUIRED += ["gke", "eks", "aks", "amd", "intel"]

pieces = st.text("ab*.", max_size=8)


def matches_by_regex(pattern: str, text: str) -> bool:
    return bool(re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL))


@settings(deadline=None)
@given(pieces, st.text("ab.\n", max_size=12))
def test_patterns_match_as_regular_expressions_do(pattern: str, text: str) -> None:
    assert matches(pattern, text) == matches_by_regex(pattern, text)


@settings(deadline=None)
@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))
def test_a_star_stands_for_anything(before: str, anything: str, after: str) -> None:
    assert matches(f"{before}*{after}", f"{before}{anything}{after}")
    plain = before.replace("*", "")
    assert matches(plain, plain)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("a*a", "a"), ("ab*ba", "aba"), ("a*b*a", "ab"), ("", "a"), ("a", ""), ("**a", "")],
)
def test_ends_do_not_overlap(pattern: str, text: str) -> None:
    assert not matches(pattern, text)


def test_a_hostile_text_does_not_make_a_pattern_explode() -> None:
    assert not matches("*a" * 200 + "b", "a" * 50_000)


def profile(name: str, *resources: str, **facts: Any) -> Profile:
    return Profile(name, resources={r: Resource(r, "acme") for r in resources}, **facts)


def test_the_facts_of_all_selected_profiles_are_merged() -> None:
    first = profile("a", "x/1", taints=(Taint(("x/1",), "t"),), runtime_classes=("r", "s"))
    second = profile(
        "b", "y/1", schedulers=(Scheduler("s", ("y/1",)),), components=(Component(("n",), ("a",)),)
    )
    known = profile("c", "z/1", taints=(Taint(("z/1",), "u"),), runtime_classes=("s", "t"))
    merged = merge_profiles([first, second], [known])
    assert merged.name == "a+b"
    assert merged.active == ("x/1", "y/1")
    assert set(merged.resources) == {"x/1", "y/1", "z/1"}
    assert [taint.key for taint in merged.taints] == ["t"]
    assert [scheduler.name for scheduler in merged.schedulers] == ["s"]
    assert merged.components == second.components
    assert set(merged.runtime_classes) == {"r", "s", "t"}


def test_two_selected_profiles_may_not_describe_one_resource() -> None:
    merged = [profile("a", "x/1", "x/2"), profile("b", "x/2")]
    with pytest.raises(ValueError, match=r"'a' and 'b' both describe the resource 'x/2'"):
        merge_profiles(merged, [])
    assert merge_profiles(merged[:1], merged).active == ("x/1", "x/2")


def test_selected_profiles_take_precedence_over_known_ones() -> None:
    own = Profile(
        "own",
        resources={"x/gpu-*": Resource("x/gpu-*", "own"), "x/1": Resource("x/1", "own")},
        node_labels={"l": ("own",)},
    )
    known = Profile(
        "known",
        resources={"x/*": Resource("x/*", "known"), "x/1": Resource("x/1", "known")},
        node_labels={"l": ("known",), "m": ()},
    )
    merged = merge_profiles([own], [known])
    vendors = {n: merged.resource(n) for n in ("x/gpu-1", "x/1", "x/other")}
    assert {n: r and r.vendor for n, r in vendors.items()} == {
        "x/gpu-1": "own",
        "x/1": "own",
        "x/other": "known",
    }
    assert merged.node_labels == {"l": ("own",), "m": ()}


def test_a_name_is_found_before_a_pattern_and_of_patterns_the_first() -> None:
    names = {"x/*": "any", "x/a*": "later", "x/ab": "exact"}
    merged = Profile(
        "p", resources={name: Resource(name, vendor) for name, vendor in names.items()}
    )
    found = [merged.resource(name) for name in ("x/ab", "x/ac", "y")]
    assert [resource and resource.vendor for resource in found] == ["exact", "any", None]


@pytest.mark.parametrize("is_full", [False, True])
def test_many_variables_are_found_as_each_one_is(*, is_full: bool) -> None:
    known = {name: VisibleDevices(name, "", ()) for name in ("A_DEVICES", "B_*")}
    profile = Profile("p", visible_devices=known)
    if is_full:
        profile.visible_variables([f"NAME_{number}" for number in range(MAX_ENTRIES)])
    names = ["OTHER", "B_2", "A_DEVICES", "B_1", "x" * 10_000]
    for _ in range(2):  # a name that was met before takes another way
        found = profile.visible_variables(names)
        assert list(found.items()) == [
            ("B_2", known["B_*"]),
            ("A_DEVICES", known["A_DEVICES"]),
            ("B_1", known["B_*"]),
        ]


def test_odd_names_of_one_pod_make_no_later_pod_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: VisibleDevices(name, "", ()) for name in ("A_DEVICES", "B_*")}
    own = Profile("p", visible_devices=known, alternative_variables=("C_DEVICES",))

    def env(prefix: str, count: int) -> list[dict[str, str]]:
        return [{"name": f"{prefix}_{number}"} for number in range(count)]

    later = [*env("B", 100), {"name": "A_DEVICES"}, {"name": "C_DEVICES"}]
    variable_traits(env("B_ODD", MAX_ENTRIES), own)
    assert own.visible_variable("A_DEVICES") is known["A_DEVICES"], "a fact is never forgotten"
    assert variable_traits(later, own) == GPU_VARIABLE | OTHER_GPU_VARIABLE
    compared: list[str] = []
    monkeypatch.setattr("rules.profile.profile.matches", lambda *texts: compared.append(texts[1]))
    monkeypatch.setattr(
        "rules.relevance.containers.traits_of_variable",
        lambda name, _profile: compared.append(name),
    )
    assert variable_traits(later, own) == GPU_VARIABLE | OTHER_GPU_VARIABLE
    assert len(own.visible_variables([entry["name"] for entry in later])) == len(later) - 1
    assert compared == [], "every name was met before"


def test_an_exact_name_is_found_again_after_any_number_of_odd_names() -> None:
    own = profile("p", "x/1", "x/*-a")
    for number in range(2 * MAX_ENTRIES):
        assert own.resource(f"y/{number}") is None
        if number % 1000 == 0:
            assert own.resource("x/1") == own.resources["x/1"]
            assert own.resource("x/2-a") == own.resources["x/*-a"]


def test_the_cache_of_resource_names_is_bounded() -> None:
    own = profile("p", "x/*")
    tracemalloc.start()
    try:
        for number in range(20_000):
            assert own.resource(f"x/{number}")
            assert own.resource(f"y/{number}") is None
        short = tracemalloc.get_traced_memory()[0]
        for number in range(300):
            assert profile("q", "x/*").resource(f"x/{number}" + "a" * 100_000)
            assert own.resource(f"x/{number}" + "a" * 100_000)
        assert short < 2_000_000
        assert tracemalloc.get_traced_memory()[0] - short < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", REQUIRED)
def test_the_required_profiles_are_built_in(name: str) -> None:
    assert name in built_in_profiles()


@pytest.mark.parametrize("name", built_in_profiles())
def test_a_built_in_profile_fits_the_schema_and_stands_alone(name: str) -> None:
    raw = built_in_profiles()[name]
    definitions = policy_schema()["$defs"]
    jsonschema.Draft202012Validator({"$ref": "#/$defs/profile", "$defs": definitions}).validate(raw)
    alone = merged_profile([name])
    assert alone.name == name
    assert raw["description"]
    assert set(built_in_profiles()) >= set(raw.get("extends", ()))
    for pattern in {p for fact in alone.taints + alone.affinities for p in fact.resources}:
        assert any(matches(pattern, r) or matches(r, pattern) for r in alone.resources), pattern


@pytest.mark.parametrize("name", built_in_profiles())
def test_the_modes_of_nodes_offer_resources_that_the_profile_knows(name: str) -> None:
    alone = merged_profile([name])
    for label in built_in_profiles()[name].get("nodeModes", {}):
        assert alone.label_values(label) == (), "every node with the label is a GPU node"
        offered = {r for resources in alone.node_modes[label].values() for r in resources}
        for pattern in offered:
            assert any(matches(pattern, r) or matches(r, pattern) for r in alone.resources), pattern


def test_the_modes_of_a_chosen_profile_replace_those_of_a_built_in_one() -> None:
    label = "ack.node.gpu.schedule"
    own = {"name": "own", "extends": ["ack"], "nodeModes": {label: {"ours": ["nvidia.com/gpu"]}}}
    assert merged_profile([own]).node_modes[label] == {"ours": ("nvidia.com/gpu",)}
    assert "cgpu" in merged_profile(["amd"]).node_modes[label]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_known_whatever_the_profile(name: str) -> None:
    assert default_policy().profile.resource(name) is not None
    assert default_policy(["amd"]).profile.resource(name) is not None


@pytest.mark.parametrize("name", OTHER_RESOURCES)
def test_other_resources_of_vendors_are_no_devices(name: str) -> None:
    assert default_policy().profile.resource(name) is None


def test_shares_and_partitions_are_distinguished() -> None:
    found = default_policy().profile
    expected = {
        "nvidia.com/gpu": "whole",
        "nvidia.com/gpu.shared": "share",
        "nvidia.com/mig-1g.5gb": "partition",
        "nvidia.com/mig-1g.5gb.shared": "share",
        "aliyun.com/gpu-mem": "share",
    }
    assert {n: r.sharing for n in expected if (r := found.resource(n))} == expected


def test_a_profile_extends_another() -> None:
    parent: dict[str, Any] = {
        "name": "parent",
        "description": "the parent",
        "resources": {"x/1": {"vendor": "a"}, "x/2": {"vendor": "a"}},
        "taints": [{"resources": ["x/1"], "key": "parent"}],
        "affinities": [{"resources": ["x/1"], "key": "parent"}],
        "schedulers": [{"name": "parent"}],
        "components": [{"namespaces": ["parent"], "serviceAccounts": ["p"]}],
        "runtimeClasses": ["parent"],
        "nodeLabels": {"parent": []},
    }
    child: dict[str, Any] = {
        "name": "child",
        "extends": ["parent"],
        "resources": {"x/2": {"vendor": "b"}, "x/3": {"vendor": "b"}},
        "taints": [{"resources": ["x/1"], "key": "child"}],
        "components": [{"namespaces": ["child"], "serviceAccounts": ["c"]}],
        "runtimeClasses": ["child"],
        "nodeLabels": {"child": ["true"]},
    }
    merged = merged_profile([child], [parent])
    assert merged.name == "child"
    assert merged.active == ("x/1", "x/2", "x/3")
    assert [merged.resources[n].vendor for n in merged.active] == ["a", "b", "b"]
    # Taints, affinities and schedulers of the child replace those of the same resources.
    assert [taint.key for taint in merged.taints] == ["child"]
    assert [affinity.key for affinity in merged.affinities] == ["parent"]
    assert [scheduler.name for scheduler in merged.schedulers] == ["parent"]
    # Everything else is added.
    assert [c.namespaces for c in merged.components][:2] == [("parent",), ("child",)]
    assert {"parent", "child"} <= set(merged.runtime_classes)
    assert {"parent", "child"} <= set(merged.node_labels)


def test_facts_inherited_through_two_parents_occur_once() -> None:
    component = {"namespaces": ["only-here"], "serviceAccounts": ["x"]}
    family: list[dict[str, Any]] = [
        {"name": "old", "components": [component]},
        {"name": "left", "extends": ["old"]},
        {"name": "right", "extends": ["old"]},
    ]
    merged = merged_profile([{"name": "young", "extends": ["left", "right"]}], family)
    assert [c.namespaces for c in merged.components].count(("only-here",)) == 1


def test_a_deep_hierarchy_with_many_parents_is_read_once() -> None:
    family: list[dict[str, Any]] = [
        {"name": f"p{age}-{one}", "extends": [f"p{age - 1}-{other}" for other in range(8)]}
        for age in range(1, 18)
        for one in range(8)
    ]
    family += [{"name": f"p0-{one}", "runtimeClasses": ["only-here"]} for one in range(8)]
    assert merged_profile(["p17-0"], family).runtime_classes.count("only-here") == 1


def test_order_does_not_matter_among_own_profiles() -> None:
    first: dict[str, Any] = {"name": "first", "extends": ["second"]}
    second: dict[str, Any] = {"name": "second", "resources": {"x/1": {"vendor": "a"}}}
    assert merged_profile(["first"], [first, second]).active == ("x/1",)
    assert merged_profile([first], [second]).active == ("x/1",)


def test_an_own_profile_replaces_the_built_in_one_of_its_name() -> None:
    own = {"name": "nvidia", "resources": {"nvidia.com/gpu": {"vendor": "nvidia"}}}
    alone = merged_profile([own])
    assert alone.active == ("nvidia.com/gpu",)
    assert alone.taints == ()
    # Also for the profiles that extend it.
    through_gke = merged_profile(["gke"], [own])
    assert "nvidia.com/mig-*" not in through_gke.active
    # The resources of the built-in profile are still known devices.
    assert alone.resource("nvidia.com/mig-1g.5gb") is not None


def test_an_own_profile_refines_the_built_in_one_of_its_name() -> None:
    taint = {"resources": ["nvidia.com/*"], "key": "example.com/gpu"}
    own = {"name": "gke", "extends": ["gke"], "taints": [taint]}
    refined, plain = merged_profile([own]), merged_profile(["gke"])
    assert refined.active == plain.active
    assert refined.affinities == plain.affinities
    of_cards = [t.key for t in refined.taints if matches_any(t.resources, "nvidia.com/gpu")]
    assert of_cards == ["example.com/gpu"]
    assert [t.key for t in refined.taints if "google.com/tpu" in t.resources] == ["google.com/tpu"]


def test_an_entry_replaces_what_is_said_of_the_same_resources_alone() -> None:
    own: dict[str, Any] = {
        "name": "own",
        "extends": ["ack-registered", "kai"],
        "schedulers": [
            {"name": "gpu-scheduler", "resources": ["nvidia.com/gpu", "aliyun.com/gpu-mem"]},
            {"name": "fractions", "annotations": ["gpu-fraction"]},
        ],
    }
    entries = [(s.name, s.resources, s.annotations) for s in merged_profile([own]).schedulers]
    assert entries == [
        ("ack-co-scheduler", ("aliyun.com/gpu-core.percentage",), ()),
        ("kai-scheduler", (), ("gpu-memory",)),
        ("gpu-scheduler", ("nvidia.com/gpu", "aliyun.com/gpu-mem"), ()),
        ("fractions", (), ("gpu-fraction",)),
    ]


def test_a_pattern_replaces_what_it_covers_and_what_covers_it() -> None:
    parent: dict[str, Any] = {
        "name": "parent",
        "taints": [
            {"resources": ["x/*", "y/1"], "key": "one"},
            {"resources": ["z/1"], "key": "two"},
        ],
    }
    taints = [{"resources": ["x/1", "z/*"], "key": "own"}]
    own: dict[str, Any] = {"name": "own", "extends": ["parent"], "taints": taints}
    found = [(t.key, t.resources) for t in merged_profile([own], [parent]).taints]
    assert found == [("one", ("y/1",)), ("own", ("x/1", "z/*"))]
    assert merged_profile([{**own, "taints": []}], [parent]).taints == ()


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (["nvidai"], r"there is no profile 'nvidai'; did you mean \"nvidia\"\?"),
        (["something else"], r"there is no profile 'something else'; there are .*nvidia"),
        ([{"name": "a", "extends": ["nvidai"]}], 'did you mean "nvidia"'),
        ([{"name": "a", "extends": ["a"]}], "in a circle: a -> a"),
        (
            [{"name": "a", "extends": ["b"]}, {"name": "b", "extends": ["a"]}],
            "in a circle: a -> b -> a",
        ),
        ([{"name": "a"}, {"name": "a"}], "two profiles are called 'a'"),
        (["nvidia", "ack"], "both describe the resource 'nvidia.com/gpu'"),
        (
            [{"name": f"p{n}", "extends": [f"p{n + 1}"]} for n in range(2000)],
            "more than 20 profiles extend each other in a row",
        ),
        # This profile replaces `nvidia`, which `gke` extends.
        ([{"name": "nvidia", "extends": ["gke"]}], "in a circle: nvidia -> gke -> nvidia"),
    ],
)
def test_an_invalid_selection_of_profiles_is_refused(choice: list[Any], why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        merged_profile(choice)


def test_a_profile_that_is_named_twice_counts_once() -> None:
    assert merged_profile(["nvidia", "nvidia"]).active == merged_profile(["nvidia"]).active


@pytest.mark.parametrize("name", VENDOR_CLASSES)
def test_the_classes_of_vendors_have_gpus(name: str) -> None:
    """All but those by which pods of several nodes share memory."""
    has_gpus = is_gpu_class(name, default_policy().profile, EMPTY_INVENTORY)
    assert has_gpus != name.startswith("compute-domain-")
