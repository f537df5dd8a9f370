"""Tests of placement by the test tables of Kubernetes, Volcano and HAMi, written anew.

Where gpuward differs from a table on purpose, a comment at the row says why.
"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from policies.loading import default_policy
from policies.policy import Policy
from rules.engine.fixing import fix
from rules.objects.object_ref import ObjectRef
from rules.objects.pod import Pod
from rules.placement.node_affinity import (
    REQUIRED_AFFINITY,
    expressions,
    impossible_label,
    is_empty_term,
    meets,
    required_terms,
)
from rules.placement.tolerations import misspelt_toleration, tolerates
from rules.profile.context import Context
from rules.profile.profile import NodeAffinity, Profile, Resource, Scheduler, Taint

CONTEXT = Context(today=datetime.date(2030, 6, 15), operation="CREATE")
DEFAULTS = ("scheduler-name", "toleration-default", "affinity-default")


def placed(spec: dict[str, Any], profile: Profile, **metadata: Any) -> dict[str, Any]:
    """The spec of a pod after the fixes of the three rules about placement."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    result = fix(pod, Policy(profile=profile).rule_set().restricted_to(DEFAULTS), CONTEXT)
    assert not result.remaining.failures
    manifest: Any = result.manifest
    placed_spec: dict[str, Any] = manifest["spec"]
    return placed_spec


def requesting(*resources: str, amount: object = 1) -> dict[str, Any]:
    """A container that requests `resources`."""
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
        # Upstream compares the values of a toleration with neither key nor Exists. The API
        # server refuses such a toleration, so here it tolerates nothing.
        ({"value": "bar"}, taint("foo", "bar"), False),
        # If the profile has no value, any value may be right, but Gt and Lt still need numbers.
        (toleration("foo", "Equal", value="bar"), taint("foo", None), True),
        (toleration("foo", "Gt", value="1"), taint("foo", None), True),
        (toleration("foo", "Gt", value="much"), taint("foo", None), False),
        # The value may be a placeholder.
        (toleration("foo", "Equal", value="${POOL}"), taint("foo", "bar"), True),
        # strconv.ParseInt takes no blanks, underscores or other digits, which Python's int does.
        (toleration("k", "Lt", value="1_000"), taint("k", "1"), False),
        (toleration("k", "Lt", value=" 9"), taint("k", "1"), False),
        (toleration("k", "Lt", value="٩"), taint("k", "1"), False),
        # Fields of wrong types raise no exception; such a toleration tolerates nothing.
        ({"key": 5, "operator": ["Exists"], "effect": {}}, taint("foo"), False),
    ],
)
def test_tolerations_that_the_upstream_table_omits(
    given: Any, against: Taint, expected: object
) -> None:
    assert tolerates(given, against) is expected


@pytest.mark.parametrize(
    ("key", "is_near_miss"),
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
def test_which_keys_are_misspelt(key: str, is_near_miss: object) -> None:
    pod = pod_of({"containers": [], "tolerations": [{"key": key, "effect": "NoExecute"}]})
    assert (misspelt_toleration(pod, taint("nvidia.com/gpu", None)) is not None) is is_near_miss


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
        ({"containers": [requesting(EK)]}, [exists(EK)]),
        ({"initContainers": [requesting(DO)], "containers": []}, [exists(DO)]),
        ({"containers": [CPU, requesting(EK)], "tolerations": [FOO]}, [FOO, exists(EK)]),
        # Sorted by key, whichever container asks first.
        (
            {"containers": [MEMORY, requesting(EK)], "initContainers": [CPU, requesting(DO)]},
            [exists(DO), exists(EK)],
        ),
        ({"containers": [CPU, requesting(EK)], "tolerations": [exists(EK)]}, [exists(EK)]),
        # Upstream appends beside a toleration of the same key with another effect or value.
        # gpuward does not do so by default: only the user knows whether the toleration is a mistake
        # or selects nodes; `toleration-mismatch` reports it.
        (
            {
                "containers": [requesting(EK)],
                "tolerations": [toleration(EK, "Equal", "NoExecute", "foo")],
            },
            [toleration(EK, "Equal", "NoExecute", "foo")],
        ),
        # Upstream appends beside a wildcard, and its test requires it. The wildcard suffices.
        (
            {"containers": [requesting(EK)], "tolerations": [{"operator": "Exists"}]},
            [{"operator": "Exists"}],
        ),
        # Upstream adds a toleration for a quantity of zero. A pod without a device needs none.
        ({"containers": [requesting(EK, amount=0)]}, None),
        ({"containers": [requesting(EK, amount="0")]}, None),
    ],
)
def test_tolerations_are_added_as_by_the_admission_plugin(
    spec: dict[str, Any], expected: object
) -> None:
    assert placed(spec, DEVICES).get("tolerations") == expected


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared"])
def test_partial_gpus_tolerate_the_taint_of_their_vendor(resource: str) -> None:
    # Upstream adds a toleration with the resource's own name. No node has such a taint.
    spec = placed({"containers": [requesting(resource)]}, default_policy().profile)
    assert spec["tolerations"] == [exists("nvidia.com/gpu")]


# --- component-helpers nodeaffinity_test.go, as far as it applies without a node -----------------


def pod_of(spec: dict[str, Any]) -> Pod:
    ref = ObjectRef("Pod", "", "", "p")
    return Pod(
        ref,
        Profile("none"),
        spec=(spec, ("spec",)),
        metadata=({}, ("metadata",)),
        stable_path="spec",
    )


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def could_match(spec: dict[str, Any], labels: dict[str, str]) -> bool:
    """Return whether a node with `labels` meets nodeSelector and one of the terms.

    Calls gpuward's functions with the labels of the node as requirements.
    """
    pod = pod_of(spec)
    node = [requirement(key, "In", value) for key, value in labels.items()]
    keys = {
        expression["key"] for _, term in required_terms(pod) for _, expression in expressions(term)
    } | set(pod.node_selector)
    node += [requirement(key, "DoesNotExist") for key in keys - set(labels)]
    node += [requirement(key, "In", value) for key, value in pod.node_selector.items()]
    if "affinity" not in spec:
        return impossible_label(node) is None
    return any(
        not is_empty_term(term)
        and impossible_label([*node, *(e for _, e in expressions(term))]) is None
        for _, term in required_terms(pod)
    )


def terms(*lists: list[dict[str, Any]]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": [{"matchExpressions": demands} for demands in lists]}
    return {"affinity": {"nodeAffinity": {REQUIRED_AFFINITY: selector}}}


@pytest.mark.parametrize(
    ("spec", "labels", "expected"),
    [
        ({}, {}, True),
        ({"nodeSelector": {"foo": "bar"}}, {}, False),
        ({"nodeSelector": {"foo": "bar"}}, {"foo": "bar"}, True),
        ({"nodeSelector": {"foo": "bar"}}, {"foo": "bar", "baz": "blah"}, True),
        ({"nodeSelector": {"foo": "bar", "baz": "blah"}}, {"foo": "bar"}, False),
        (terms([requirement("foo", "In", "bar", "value2")]), {"foo": "bar"}, True),
        (terms([requirement("version", "Gt", "0204")]), {"version": "0206"}, True),
        (terms([requirement("mem-type", "NotIn", "DDR", "DDR2")]), {"mem-type": "DDR3"}, True),
        # NotIn also fits a node without the label.
        (terms([requirement("mem-type", "NotIn", "DDR", "DDR2")]), {}, True),
        (terms([requirement("GPU", "Exists")]), {"GPU": "NVIDIA-GRID-K1"}, True),
        (terms([requirement("foo", "In", "value1", "value2")]), {"foo": "bar"}, False),
        (terms(), {"foo": "bar"}, False),
        (terms([]), {"foo": "bar"}, False),
        (
            terms([requirement("GPU", "Exists"), requirement("GPU", "NotIn", "AMD", "INTER")]),
            {"GPU": "NVIDIA-GRID-K1"},
            True,
        ),
        (
            terms([requirement("GPU", "Exists"), requirement("GPU", "In", "AMD", "INTER")]),
            {"GPU": "NVIDIA-GRID-K1"},
            False,
        ),
        (
            terms([requirement("foo", "In", "bar")], [requirement("diffkey", "In", "wrong")]),
            {"foo": "bar"},
            True,
        ),
        (
            {"nodeSelector": {"foo": "bar"}, **terms([requirement("foo", "Exists")])},
            {"foo": "bar"},
            True,
        ),
        (
            {"nodeSelector": {"foo": "bar"}, **terms([requirement("foo", "Exists")])},
            {"foo": "barrrrrr"},
            False,
        ),
        # Upstream, a term with a value that no label can have matches nothing. The API server
        # refuses it; gpuward takes NotIn literally and reports nothing.
        (terms([requirement("foo", "NotIn", "invalid value: ___@#$%^")]), {"foo": "bar"}, True),
        # Upstream compares numbers in Gt and Lt. gpuward only requires that the label exists: it
        # does not report a contradiction of numbers.
        (terms([requirement("version", "Gt", "0300")]), {"version": "0206"}, True),
        (terms([requirement("version", "Gt", "0204")]), {}, False),
    ],
)
def test_terms_are_read_as_the_scheduler_reads_them(
    spec: dict[str, Any], labels: dict[str, str], expected: object
) -> None:
    assert could_match(spec, labels) is expected


# --- volcano mutate_pod_test.go: where gpuward differs ------------------------------------------

GROUP = Profile(
    "group",
    resources={"example.com/gpu": Resource("example.com/gpu", "example")},
    taints=(Taint(("example.com/gpu",), "mng-taint-1"),),
    affinities=(NodeAffinity(("example.com/gpu",), "kubernetes.io/os", ("linux",), required=True),),
    schedulers=(Scheduler("volcano", ("example.com/gpu",)),),
)
LINUX = terms([requirement("kubernetes.io/os", "In", "linux")])["affinity"]


def test_a_pod_of_the_group_is_placed() -> None:
    # Its resource puts it into the group, not its namespace or an annotation.
    spec = placed({"containers": [requesting("example.com/gpu")]}, GROUP)
    assert spec["schedulerName"] == "volcano"
    assert spec["tolerations"] == [exists("mng-taint-1")]
    assert spec["affinity"] == LINUX


def test_a_pod_outside_the_group_is_unchanged() -> None:
    spec = {"containers": [CPU]}
    assert placed(spec, GROUP) is spec


def test_tolerations_are_not_appended_twice() -> None:
    once = placed({"containers": [requesting("example.com/gpu")]}, GROUP)
    assert placed(once, GROUP) is once


def test_another_scheduler_is_not_overwritten() -> None:
    # Volcano overwrites the scheduler name and the other fields.
    spec = {"schedulerName": "yunikorn", "containers": [requesting("example.com/gpu")]}
    assert placed(spec, GROUP) is spec


def test_the_users_selector_is_not_overwritten() -> None:
    # Volcano replaces the values of nodeSelector. gpuward adds nothing if the label is there.
    chosen = {"kubernetes.io/os": "windows"}
    spec = {"nodeSelector": chosen, "containers": [requesting("example.com/gpu")]}
    fixed = placed(spec, GROUP)
    assert fixed["nodeSelector"] == chosen
    assert "affinity" not in fixed


def test_a_pod_affinity_does_not_prevent_the_node_affinity() -> None:
    # Volcano adds no node affinity if the pod has any affinity.
    spec = {"affinity": {"podAntiAffinity": {}}, "containers": [requesting("example.com/gpu")]}
    assert placed(spec, GROUP)["affinity"] == {"podAntiAffinity": {}, **LINUX}


# --- HAMi webhook_test.go: schedulerName -------------------------------------------------------

HAMI = default_policy(["hami"]).profile


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [requesting("nvidia.com/gpu")]}, "hami-scheduler"),
        ({"containers": [requesting("nvidia.com/gpu")], "schedulerName": ""}, "hami-scheduler"),
        # With forceOverwriteDefaultScheduler off HAMi skips this pod. The API server sets this
        # default in every pod without a scheduler name, so it must count as none.
        (
            {"containers": [requesting("nvidia.com/gpu")], "schedulerName": "default-scheduler"},
            "hami-scheduler",
        ),
        (
            {"containers": [requesting("nvidia.com/gpu")], "schedulerName": "different-scheduler"},
            "different-scheduler",
        ),
        ({"containers": [CPU]}, None),
        # HAMi refuses a pod without containers; the API server refuses it anyway.
        ({"containers": []}, None),
        # HAMi refuses this pod too. No scheduler sees it; `nodename-pinned` reports it.
        ({"containers": [requesting("nvidia.com/gpu")], "nodeName": "test-node"}, None),
        # HAMi skipped privileged containers, and the pod stayed with the default scheduler. Whether
        # it may run is decided by `privileged-gpu`; where it runs does not depend on that.
        (
            {
                "containers": [
                    {**requesting("nvidia.com/gpu"), "securityContext": {"privileged": True}}
                ]
            },
            "hami-scheduler",
        ),
        # Init containers count. Earlier versions of HAMi ignored them.
        (
            {"initContainers": [requesting("nvidia.com/gpumem")], "containers": [CPU]},
            "hami-scheduler",
        ),
        ({"containers": [CPU, requesting("nvidia.com/gpu")]}, "hami-scheduler"),
    ],
)
def test_the_scheduler_is_set_as_by_hami(spec: dict[str, Any], expected: object) -> None:
    assert placed(spec, HAMI).get("schedulerName") == expected


@pytest.mark.parametrize(
    ("operator", "value", "values", "expected"),
    [
        ("Gt", "9223372036854775807", ["9223372036854775806"], True),
        ("Gt", "9223372036854775808", ["1"], False),  # no int64
        ("Lt", "+8", ["9223372036854775807"], True),
        ("Lt", "-3", ["0"], True),
        ("Gt", "8", ["1", "2"], False),
        ("Lt", None, ["9"], False),
        ("Gt", "eight", ["1"], False),
        ("NotIn", None, ["a"], True),
        ("In", None, ["a"], False),
        ("Equals", "a", ["a"], False),
    ],
)
def test_a_label_meets_an_operator_as_in_kubernetes(
    operator: str, value: str | None, values: list[str], *, expected: bool
) -> None:
    assert meets(operator, value, values) is expected
