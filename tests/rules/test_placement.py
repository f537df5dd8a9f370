"""Placement against the tables of those who do it in Kubernetes, written anew.

Where we differ from a table on purpose, a comment at the row says why.
"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from policies.loading import default_policy
from rules.engine.fixing import fix
from rules.objects.object_ref import ObjectRef
from rules.objects.pod import Pod
from rules.placement.node_affinity import (
    REQUIRED,
    expressions,
    impossible_label,
    is_empty,
    required_terms,
)
from rules.placement.tolerations import near_miss_toleration, tolerates
from rules.policy import Policy
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.profile.records import NodeAffinity, Resource, Scheduler, Taint

CONTEXT = Context(today=datetime.date(2030, 6, 15))
DEFAULTS = ("scheduler-name", "toleration-default", "affinity-default")


def placed(spec: dict[str, Any], profile: Profile, **metadata: Any) -> dict[str, Any]:
    """The spec of a pod as our three placing rules leave it."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    result = fix(pod, Policy(profile=profile).rule_set().restricted_to(DEFAULTS), CONTEXT)
    assert not result.remaining.failures
    manifest: Any = result.manifest
    placed_spec: dict[str, Any] = manifest["spec"]
    return placed_spec


def asking(*resources: str, amount: object = 1) -> dict[str, Any]:
    """A container that asks for `resources`."""
    return {"name": "c", "resources": {"limits": dict.fromkeys(resources, amount)}}


# --- core/v1 toleration_test.go: TestTolerationToleratesTaint ---------------------------------

SLA = "node.kubernetes.io/sla"


def toleration(key: str, operator: str, effect: str = "NoSchedule", value: str = "") -> Any:
    return {"key": key, "operator": operator, "effect": effect, "value": value}


def taint(key: str, value: str | None = "", effect: str = "NoSchedule") -> Taint:
    return Taint(resources=(), key=key, value=value, effect=effect)


@pytest.mark.parametrize(
    ("given", "against", "expected"),
    [
        (toleration("foo", "Exists"), taint("foo"), True),
        (toleration("foo", "Exists"), taint("foo", "bar"), True),
        (toleration("", "Exists"), taint("foo", "bar"), True),
        (toleration("foo", "Equal", value="bar"), taint("foo", "bar"), True),
        (toleration("foo", "Equal", value="one"), taint("foo", "two"), False),
        (toleration("foo", "Equal", value="bar"), taint("foo", "bar", "NoExecute"), False),
        (toleration(SLA, "Gt", value="950"), taint(SLA, "800"), False),
        (toleration(SLA, "Gt", value="750"), taint(SLA, "950"), True),
        (toleration(SLA, "Lt", value="800"), taint(SLA, "950"), False),
        (toleration(SLA, "Lt", value="950"), taint(SLA, "800"), True),
        (toleration(SLA, "Gt", value="950"), taint(SLA, "950"), False),
        (toleration(SLA, "Gt", value="950"), taint(SLA, "high"), False),
        (toleration("k", "Gt", value="-100"), taint("k", "-200"), False),
        (toleration("k", "Gt", value="9223372036854775806"), taint("k", "100"), False),
    ],
)
def test_a_toleration_tolerates_as_in_kubernetes(
    given: Any, against: Taint, expected: object
) -> None:
    assert tolerates(given, against) is expected


@pytest.mark.parametrize(
    ("given", "against", "expected"),
    [
        # Empty effect, empty operator, absent fields: rules 1 to 3 of ToleratesTaint's comment.
        ({"key": "foo", "operator": "Exists"}, taint("foo", "bar", "NoExecute"), True),
        ({"operator": "Exists"}, taint("foo", "bar", "NoExecute"), True),
        ({"key": "foo", "value": "bar"}, taint("foo", "bar"), True),
        ({"key": "foo"}, taint("foo", ""), True),
        ({"key": "foo"}, taint("foo", "bar"), False),
        ({"key": "foo", "operator": "exists"}, taint("foo"), False),
        # Upstream compares the values of a toleration with neither key nor Exists; the API
        # server refuses such a one, so nothing is tolerated by it here.
        ({"value": "bar"}, taint("foo", "bar"), False),
        # A profile may not know the value. Then any may be right, and numbers are still numbers.
        (toleration("foo", "Equal", value="bar"), taint("foo", None), True),
        (toleration("foo", "Gt", value="1"), taint("foo", None), True),
        (toleration("foo", "Gt", value="much"), taint("foo", None), False),
        # In text a value may be yet to be filled in.
        (toleration("foo", "Equal", value="${POOL}"), taint("foo", "bar"), True),
        # strconv.ParseInt takes no blanks, underscores or other digits, which Python's int does.
        (toleration("k", "Lt", value="1_000"), taint("k", "1"), False),
        (toleration("k", "Lt", value=" 9"), taint("k", "1"), False),
        (toleration("k", "Lt", value="٩"), taint("k", "1"), False),
        # Fields of wrong types never fail; what cannot be read says nothing.
        ({"key": 5, "operator": ["Exists"], "effect": {}}, taint("foo"), False),
    ],
)
def test_what_the_table_leaves_out(given: Any, against: Taint, expected: object) -> None:
    assert tolerates(given, against) is expected


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia/gpu", True),
        ("nvidia.com/gpus", True),
        ("NVIDIA.com/GPU", True),
        ("nvidia.com.gpu", True),
        ("nvidia.com/gpu ", True),
        ("nvidia.com/gpu.shared", False),
        ("nvidia.com/mig-1g.5gb", False),
        ("amd.com/gpu", False),
        ("gpu", False),
        ("", False),
    ],
)
def test_which_keys_are_misspelt(key: str, meant: object) -> None:
    pod = pod_of({"containers": [], "tolerations": [{"key": key, "effect": "NoExecute"}]})
    assert (near_miss_toleration(pod, taint("nvidia.com/gpu", None)) is not None) is meant


# --- extendedresourcetoleration/admission_test.go: TestAdmit -----------------------------------

EK, DO = "example.com/device-ek", "example.com/device-do"
DEVICES = Profile(
    "devices",
    resources={name: Resource(name, "example") for name in (EK, DO)},
    taints=(Taint((EK,), EK), Taint((DO,), DO)),
)
FOO = toleration("foo", "Equal", value="bar")
CPU = {"name": "cpu", "resources": {"requests": {"cpu": 2}}}
MEMORY = {"name": "memory", "resources": {"requests": {"memory": 2048}}}


def exists(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": []}, None),
        ({"containers": [CPU]}, None),
        ({"initContainers": [MEMORY], "containers": []}, None),
        ({"containers": [asking(EK)]}, [exists(EK)]),
        ({"initContainers": [asking(DO)], "containers": []}, [exists(DO)]),
        ({"containers": [CPU, asking(EK)], "tolerations": [FOO]}, [FOO, exists(EK)]),
        # Sorted by key, whichever container asks first.
        (
            {"containers": [MEMORY, asking(EK)], "initContainers": [CPU, asking(DO)]},
            [exists(DO), exists(EK)],
        ),
        ({"containers": [CPU, asking(EK)], "tolerations": [exists(EK)]}, [exists(EK)]),
        # Upstream appends beside a toleration of the same key with another effect or value. We do
        # not unasked: it was meant for this taint or is a choice among nodes, and only the user
        # knows which; `toleration-mismatch` says so.
        (
            {
                "containers": [asking(EK)],
                "tolerations": [toleration(EK, "Equal", "NoExecute", "foo")],
            },
            [toleration(EK, "Equal", "NoExecute", "foo")],
        ),
        # Upstream appends beside a wildcard; its test demands it. The wildcard tolerates already.
        (
            {"containers": [asking(EK)], "tolerations": [{"operator": "Exists"}]},
            [{"operator": "Exists"}],
        ),
        # Upstream tolerates for a quantity of nothing. A pod without a device needs no such node.
        ({"containers": [asking(EK, amount=0)]}, None),
        ({"containers": [asking(EK, amount="0")]}, None),
    ],
)
def test_tolerations_are_added_as_by_the_admission_plugin(
    spec: dict[str, Any], expected: object
) -> None:
    assert placed(spec, DEVICES).get("tolerations") == expected


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared"])
def test_parts_of_a_card_carry_the_taint_of_its_vendor(resource: str) -> None:
    # Upstream would add a toleration with the resource's own name, which no node bears.
    spec = placed({"containers": [asking(resource)]}, default_policy().profile)
    assert spec["tolerations"] == [exists("nvidia.com/gpu")]


# --- component-helpers nodeaffinity_test.go, as far as it can be known without a node -----------


def pod_of(spec: dict[str, Any]) -> Pod:
    ref = ObjectRef("Pod", "", "", "p")
    return Pod(
        ref,
        Profile("none"),
        spec=(spec, ("spec",)),
        metadata=({}, ("metadata",)),
        stable_path="spec",
    )


def demand(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def could_match(spec: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a node with `labels` meets nodeSelector and one of the terms.

    Our own functions, given what such a node would say of itself.
    """
    pod = pod_of(spec)
    node = [demand(key, "In", value) for key, value in labels.items()]
    mentioned = {
        expression["key"] for _, term in required_terms(pod) for _, expression in expressions(term)
    } | set(pod.node_selector)
    node += [demand(key, "DoesNotExist") for key in mentioned - set(labels)]
    node += [demand(key, "In", value) for key, value in pod.node_selector.items()]
    if "affinity" not in spec:
        return impossible_label(node) is None
    return any(
        not is_empty(term) and impossible_label([*node, *(e for _, e in expressions(term))]) is None
        for _, term in required_terms(pod)
    )


def terms(*lists: list[dict[str, Any]]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": [{"matchExpressions": demands} for demands in lists]}
    return {"affinity": {"nodeAffinity": {REQUIRED: selector}}}


@pytest.mark.parametrize(
    ("spec", "labels", "expected"),
    [
        ({}, {}, True),
        ({"nodeSelector": {"foo": "bar"}}, {}, False),
        ({"nodeSelector": {"foo": "bar"}}, {"foo": "bar"}, True),
        ({"nodeSelector": {"foo": "bar"}}, {"foo": "bar", "baz": "blah"}, True),
        ({"nodeSelector": {"foo": "bar", "baz": "blah"}}, {"foo": "bar"}, False),
        (terms([demand("foo", "In", "bar", "value2")]), {"foo": "bar"}, True),
        (terms([demand("version", "Gt", "0204")]), {"version": "0206"}, True),
        (terms([demand("mem-type", "NotIn", "DDR", "DDR2")]), {"mem-type": "DDR3"}, True),
        # NotIn also fits a node without the label.
        (terms([demand("mem-type", "NotIn", "DDR", "DDR2")]), {}, True),
        (terms([demand("GPU", "Exists")]), {"GPU": "NVIDIA-GRID-K1"}, True),
        (terms([demand("foo", "In", "value1", "value2")]), {"foo": "bar"}, False),
        (terms(), {"foo": "bar"}, False),
        (terms([]), {"foo": "bar"}, False),
        (
            terms([demand("GPU", "Exists"), demand("GPU", "NotIn", "AMD", "INTER")]),
            {"GPU": "NVIDIA-GRID-K1"},
            True,
        ),
        (
            terms([demand("GPU", "Exists"), demand("GPU", "In", "AMD", "INTER")]),
            {"GPU": "NVIDIA-GRID-K1"},
            False,
        ),
        (
            terms([demand("foo", "In", "bar")], [demand("diffkey", "In", "wrong")]),
            {"foo": "bar"},
            True,
        ),
        (
            {"nodeSelector": {"foo": "bar"}, **terms([demand("foo", "Exists")])},
            {"foo": "bar"},
            True,
        ),
        (
            {"nodeSelector": {"foo": "bar"}, **terms([demand("foo", "Exists")])},
            {"foo": "barrrrrr"},
            False,
        ),
        # Upstream a term with a value that no label can have matches nothing. The API server
        # refuses it; we read NotIn as written and say nothing.
        (terms([demand("foo", "NotIn", "invalid value: ___@#$%^")]), {"foo": "bar"}, True),
        # Upstream compares numbers in Gt and Lt. We only know that the label must exist: a
        # contradiction of numbers is not reported.
        (terms([demand("version", "Gt", "0300")]), {"version": "0206"}, True),
        (terms([demand("version", "Gt", "0204")]), {}, False),
    ],
)
def test_terms_are_read_as_the_scheduler_reads_them(
    spec: dict[str, Any], labels: dict[str, str], expected: object
) -> None:
    assert could_match(spec, labels) is expected


# --- volcano mutate_pod_test.go: what we do otherwise ------------------------------------------

GROUP = Profile(
    "group",
    resources={"example.com/gpu": Resource("example.com/gpu", "example")},
    taints=(Taint(("example.com/gpu",), "mng-taint-1"),),
    affinities=(NodeAffinity(("example.com/gpu",), "kubernetes.io/os", ("linux",), required=True),),
    schedulers=(Scheduler("volcano", ("example.com/gpu",)),),
)
LINUX = terms([demand("kubernetes.io/os", "In", "linux")])["affinity"]


def test_a_pod_of_the_group_is_placed() -> None:
    # Its resource makes it one, not its namespace or an annotation that anybody may write.
    spec = placed({"containers": [asking("example.com/gpu")]}, GROUP)
    assert spec["schedulerName"] == "volcano"
    assert spec["tolerations"] == [exists("mng-taint-1")]
    assert spec["affinity"] == LINUX


def test_a_pod_outside_the_group_is_left_alone() -> None:
    spec = {"containers": [CPU]}
    assert placed(spec, GROUP) is spec


def test_tolerations_are_not_appended_blindly() -> None:
    once = placed({"containers": [asking("example.com/gpu")]}, GROUP)
    assert placed(once, GROUP) is once


def test_another_scheduler_is_not_overwritten() -> None:
    # Volcano sets its own name over any other, and the rest as well.
    spec = {"schedulerName": "yunikorn", "containers": [asking("example.com/gpu")]}
    assert placed(spec, GROUP) is spec


def test_the_users_selector_is_not_overwritten() -> None:
    # Volcano replaces the values of nodeSelector; ours names the label, so nothing is added.
    chosen = {"kubernetes.io/os": "windows"}
    spec = {"nodeSelector": chosen, "containers": [asking("example.com/gpu")]}
    mended = placed(spec, GROUP)
    assert mended["nodeSelector"] == chosen
    assert "affinity" not in mended


def test_an_affinity_to_other_pods_does_not_hinder_ours() -> None:
    # Volcano adds none if the pod has any affinity at all.
    spec = {"affinity": {"podAntiAffinity": {}}, "containers": [asking("example.com/gpu")]}
    assert placed(spec, GROUP)["affinity"] == {"podAntiAffinity": {}, **LINUX}


# --- HAMi webhook_test.go: schedulerName -------------------------------------------------------

HAMI = default_policy(["hami"]).profile


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [asking("nvidia.com/gpu")]}, "hami-scheduler"),
        ({"containers": [asking("nvidia.com/gpu")], "schedulerName": ""}, "hami-scheduler"),
        # With forceOverwriteDefaultScheduler off HAMi skips this one. Behind the API server's
        # defaulting it is every pod that names no scheduler, so it must count as none.
        (
            {"containers": [asking("nvidia.com/gpu")], "schedulerName": "default-scheduler"},
            "hami-scheduler",
        ),
        (
            {"containers": [asking("nvidia.com/gpu")], "schedulerName": "different-scheduler"},
            "different-scheduler",
        ),
        ({"containers": [CPU]}, None),
        # HAMi refuses a pod without containers; the API server has the better words for it.
        ({"containers": []}, None),
        # HAMi refuses this one too. `nodename-pinned` speaks; no scheduler will see the pod.
        ({"containers": [asking("nvidia.com/gpu")], "nodeName": "test-node"}, None),
        # HAMi skipped privileged containers, and the pod hung at the default scheduler. Whether it
        # may run is for `privileged-gpu` to say; where it runs does not depend on it.
        (
            {"containers": [{**asking("nvidia.com/gpu"), "securityContext": {"privileged": True}}]},
            "hami-scheduler",
        ),
        # Init containers count; HAMi ignored them for long.
        ({"initContainers": [asking("nvidia.com/gpumem")], "containers": [CPU]}, "hami-scheduler"),
        ({"containers": [CPU, asking("nvidia.com/gpu")]}, "hami-scheduler"),
    ],
)
def test_the_scheduler_is_set_as_by_hami(spec: dict[str, Any], expected: object) -> None:
    assert placed(spec, HAMI).get("schedulerName") == expected
