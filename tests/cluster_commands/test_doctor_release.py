"""The answers of `gpuward doctor` about gpuward's own release, compared with the chart's record."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cluster.doctor.rows import Row, State
from cluster.source.registered import is_excluded, is_unexpectedly_not_sent
from tests.testkit.cluster_commands.doctor_rows import (
    in_release,
    installed,
    recorded,
    rows,
    states,
)
from tests.testkit.cluster_commands.gpu_objects import Object, pod

POLICY = in_release(
    "ConfigMap",
    "gpuward-policy",
    data={"gpuward.yaml": "apiVersion: gpuward.io/v1\nkind: Policy\n"},
)
NEVER = {"matchLabels": {"never": "x"}}


def namespace(name: str, **labels: str) -> Object:
    named = {"kubernetes.io/metadata.name": name, **labels}
    return {"kind": "Namespace", "metadata": {"name": name, "labels": named}}


def with_bundles(pair: list[Object]) -> list[Object]:
    """The configurations as they are once their caBundle is written."""
    for item in pair:
        for entry in item["webhooks"]:
            entry["clientConfig"]["caBundle"] = "eA=="
    return pair


def changed(index: int, **fields: Any) -> list[Object]:
    """The configurations of which one, 0 or 1, has other `fields` in each webhook."""
    pair = with_bundles(copy.deepcopy(installed()))
    for entry in pair[index]["webhooks"]:
        for field, value in fields.items():
            present = entry.get(field)
            entry[field] = {**present, **value} if isinstance(present, dict) else value
    return pair


def wrong(found: list[Row]) -> list[str]:
    return [row.message for row in found if row.state is State.WRONG]


def test_what_the_chart_recorded_is_registered() -> None:
    found = rows(*with_bundles(installed()), recorded("Service/gpuward"), POLICY)["registration"]
    assert states(found) == {
        "gpuward (MutatingWebhookConfiguration)": State.OK,
        "gpuward (ValidatingWebhookConfiguration)": State.OK,
    }


def test_selectors_that_select_nothing_are_wrong_and_so_are_the_namespaces_they_leave_out() -> None:
    pair = changed(1, namespaceSelector=NEVER)
    homes = (
        namespace("labelled", **{"gpuward.io/mode": "deny"}),
        namespace("training"),
        namespace("web"),
        namespace("quiet", **{"gpuward.io/mode": "off"}),
        namespace("kube-system"),
    )
    consumers = pod("p", {"nvidia.com/gpu": 1}, namespace="training")
    found = rows(*pair, *homes, consumers, recorded("Service/gpuward"))
    (message,) = wrong(found["registration"])
    assert 'namespaceSelector.matchLabels: expected nothing, found {"never": "x"}' in message
    assert {row.subject: row.message for row in found["namespaces"] if row.remedy} == {
        "labelled": "not sent to gpuward, and should be sent in mode deny",
        "training": "not sent to gpuward, and should be sent in mode warn",
    }


def test_a_namespace_that_somebody_has_excluded_by_name_is_wrong() -> None:
    pair = with_bundles(copy.deepcopy(installed()))
    for entry in pair[1]["webhooks"]:
        entry["namespaceSelector"]["matchExpressions"][0]["values"].append("labelled")
    home = namespace("labelled", **{"gpuward.io/mode": "deny"})
    found = rows(*pair, home, recorded("Service/gpuward"))
    assert wrong(found["namespaces"]) == ["not sent to gpuward, and should be sent in mode deny"]


def test_a_namespace_that_is_sent_in_another_mode_is_wrong() -> None:
    pair = with_bundles(copy.deepcopy(installed()))
    for entry in pair[1]["webhooks"]:
        if entry["name"] == "deny.gpuward.io":
            entry["namespaceSelector"] = {"matchLabels": {"never": "x"}}
        if entry["name"] == "warn.gpuward.io":
            entry["namespaceSelector"] = {}
    home = namespace("labelled", **{"gpuward.io/mode": "deny"})
    found = rows(*pair, home, recorded("Service/gpuward"))
    assert wrong(found["namespaces"]) == [
        "sent to gpuward in mode warn, and should be sent in mode deny"
    ]


def test_without_a_record_selectors_that_select_nothing_are_still_wrong() -> None:
    pair = changed(1, namespaceSelector=NEVER)
    home = namespace("labelled", **{"gpuward.io/mode": "deny"})
    found = rows(*pair, home, namespace("kube-system"))
    assert [row.state for row in found["registration"]] == [State.NOT_KNOWN]
    assert wrong(found["namespaces"]) == ["not sent to gpuward, and nothing says why"]


def test_what_the_provider_excludes_is_not_wrong() -> None:
    """AKS adds such a term to every webhook."""
    term = {"key": "control-plane", "operator": "DoesNotExist"}
    pair = with_bundles(copy.deepcopy(installed()))
    for item in pair:
        for entry in item["webhooks"]:
            entry["namespaceSelector"]["matchExpressions"].append(term)
    home = namespace("gatekeeper", **{"control-plane": "manager", "gpuward.io/mode": "deny"})
    for record in ((recorded("Service/gpuward"),), ()):
        found = rows(*pair, home, *record)
        assert wrong(found["namespaces"]) + wrong(found["registration"]) == []


@pytest.mark.parametrize(
    ("labels", "expected"),
    [({}, False), ({"gpuward.io/mode": "off"}, False), ({"gpuward.io/mode": "deny"}, True)],
)
def test_only_selectors_without_a_reason_are_unexpected(
    labels: dict[str, str], *, expected: bool
) -> None:
    """The default mode is `off`, and a user has broken the webhook for `deny`."""
    term = {"key": "gpuward.io/mode", "operator": "In", "values": ["warn"]}
    broken = {"matchLabels": {"never": "x"}}
    entries = [
        {"name": "warn.gpuward.io", "namespaceSelector": {"matchExpressions": [term]}},
        {"name": "deny.gpuward.io", "namespaceSelector": broken},
    ]
    configuration = {"webhooks": entries}
    assert is_unexpectedly_not_sent([configuration], "a", labels) == (expected or not labels)
    assert not is_excluded([configuration], "a", labels)


@pytest.mark.parametrize(
    ("config_map", "state", "part"),
    [
        (POLICY, State.OK, "gpuward can use it"),
        ({"gpuward.yaml": "kind: Policy\nrules: 7\n"}, State.WRONG, "goes by an earlier policy"),
        ({"other": ""}, State.WRONG, "the key gpuward.yaml is missing"),
        (None, State.WRONG, "it does not exist"),
    ],
)
def test_the_policy(config_map: Any, state: State, part: str) -> None:
    objects = [recorded("Service/gpuward")]
    if config_map is not None:
        made = in_release("ConfigMap", "gpuward-policy", data=config_map)
        objects.append(config_map if "kind" in config_map else made)
    (row,) = rows(*with_bundles(installed()), *objects)["policy"]
    assert (row.state, part in row.message) == (state, True), row


NEEDED = ("Deployment/gpuward", "Deployment/gpuward-certs", "Secret/gpuward-tls", "Service/gpuward")
SERVICE = in_release("Service", "gpuward")
SECRET = in_release("Secret", "gpuward-tls")


def deployment(name: str, replicas: int = 1, available: int = 1) -> Object:
    status = {"availableReplicas": available, "readyReplicas": available}
    return in_release("Deployment", name, spec={"replicas": replicas}, status=status)


def test_what_is_deleted_or_does_not_run_is_wrong() -> None:
    present = (deployment("gpuward", available=0), SERVICE)
    found = rows(*with_bundles(installed()), recorded(*NEEDED), *present)["release"]
    assert states(found) == {
        "deployment/gpuward in gpuward-system": State.WRONG,
        "deployment/gpuward-certs in gpuward-system": State.WRONG,
        "secret/gpuward-tls in gpuward-system": State.WRONG,
        "service/gpuward in gpuward-system": State.OK,
    }
    assert wrong(found)[0] == "no replica is available"
    all_there = (deployment("gpuward"), deployment("gpuward-certs"), SERVICE, SECRET)
    found = rows(*with_bundles(installed()), recorded(*NEEDED), *all_there)["release"]
    assert [(row.state, row.message) for row in found] == [
        (State.OK, "4 objects of the release are there")
    ]
    stopped = (deployment("gpuward"), deployment("gpuward-certs", replicas=0), SERVICE, SECRET)
    found = rows(*with_bundles(installed()), recorded(*NEEDED), *stopped)["release"]
    assert wrong(found) == ["scaled to 0 replicas: nothing of it runs"]
    one_down = (deployment("gpuward", replicas=2), deployment("gpuward-certs"), SERVICE, SECRET)
    found = rows(*with_bundles(installed()), recorded(*NEEDED), *one_down)["release"]
    assert wrong(found) == ["1 of 2 replicas are available"]


def test_the_lease_of_the_certificate_controller_is_part_of_the_release() -> None:
    record = recorded("Lease/gpuward-certs")
    (row,) = rows(*with_bundles(installed()), record)["release"]
    assert (row.subject, row.state) == ("lease/gpuward-certs in gpuward-system", State.WRONG)
    lease = in_release("Lease", "gpuward-certs")
    (row,) = rows(*with_bundles(installed()), record, lease)["release"]
    assert (row.state, row.subject) == (State.OK, "service/gpuward in gpuward-system")


def test_what_may_not_be_read_is_not_known_and_named() -> None:
    objects = (*with_bundles(installed()), recorded(*NEEDED), deployment("gpuward"), SERVICE)
    found = rows(*objects, deployment("gpuward-certs"), forbidden=("secrets",))["release"]
    (unknown,) = (row for row in found if row.state is State.NOT_KNOWN)
    assert unknown.subject == "secret/gpuward-tls in gpuward-system"
    assert unknown.remedy == "grant the right to get secrets in namespace gpuward-system"
    unreadable = rows(*with_bundles(installed()), forbidden=("configmaps",))
    for check in ("registration", "policy"):
        assert [row.state for row in unreadable[check]] == [State.NOT_KNOWN]


def test_files_without_the_release_say_that_it_is_not_known() -> None:
    found = rows(*with_bundles(installed()), request=None)
    assert {row.state for check in ("registration", "policy") for row in found[check]} == {
        State.NOT_KNOWN
    }


@pytest.mark.parametrize(
    ("objects", "part"),
    [
        ((deployment("gpuward"),), "the Service does not exist"),
        (
            (deployment("gpuward"), SERVICE),
            "no endpoint, although 1 replica of deployment/gpuward",
        ),
        ((deployment("gpuward", available=0), SERVICE), "no ready replica"),
    ],
)
def test_a_service_without_endpoints_says_whether_it_is_the_service_or_the_pods(
    objects: tuple[Object, ...], part: str
) -> None:
    found = rows(*with_bundles(installed()), *objects)["webhook"]
    (message,) = (row.message for row in found if row.subject.startswith("service/"))
    assert message.startswith(part)


def prioritised(name: str, priority_class: str | None = None) -> Object:
    spec = {"priorityClassName": priority_class} if priority_class else {}
    return in_release("Deployment", name, spec={"template": {"spec": spec}})


def priority_class(name: str, value: int, **fields: Any) -> Object:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **fields}


@pytest.mark.parametrize(
    ("name", "classes", "state", "message"),
    [
        ("system-node-critical", (), State.OK, "no pod can evict it"),
        (None, (), State.WRONG, "no priority class: pods of every class can evict it"),
        (
            "system-cluster-critical",
            (priority_class("system-node-critical", 2_000_001_000), priority_class("gold", 9)),
            State.NOT_KNOWN,
            "pods of system-node-critical can evict it, if users may name it",
        ),
        (
            "platform",
            (priority_class("platform", 1_000), priority_class("gold", 1_001)),
            State.WRONG,
            "pods of the class gold can evict it",
        ),
        (
            "platform",
            (
                *(priority_class("platform", 1_000), priority_class("equal", 1_000)),
                priority_class("waits", 2_000, preemptionPolicy="Never"),
            ),
            State.NOT_KNOWN,
            "pods of system-node-critical can evict it, if users may name it",
        ),
        ("platform", (), State.NOT_KNOWN, "whose value is not known"),
        ("platform", (priority_class("other", 7),), State.NOT_KNOWN, "whose value is not known"),
    ],
)
def test_whether_pods_of_users_can_evict_gpuward(
    name: str | None, classes: tuple[Object, ...], state: State, message: str
) -> None:
    found = rows(*installed(), recorded(), prioritised("gpuward", name), *classes)["priority"]
    assert states(found) == {"deployment/gpuward in gpuward-system": state}
    assert message in found[0].message


def test_every_deployment_that_is_needed_must_have_the_class() -> None:
    names = ("gpuward", "gpuward-certs", "gpuward-audit", "gpuward-watch")
    own = [prioritised(name, "system-node-critical") for name in names[:1]]
    own += [prioritised(name) for name in names[1:]]
    record = recorded(*(f"Deployment/{name}" for name in names))
    assert states(rows(*installed(), record, *own)["priority"]) == {
        "deployment/gpuward-certs, gpuward-watch in gpuward-system": State.WRONG,
        "deployment/gpuward in gpuward-system": State.OK,
    }


def test_without_a_release_nobody_looks_at_its_priority() -> None:
    assert "priority" not in rows()
