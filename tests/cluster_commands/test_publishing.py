"""The behaviour of `gpuward audit` where a namespace takes no report, or no Event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.api.events import EventsClient, Regarding, WarningEvent
from cluster.audit import sinks
from cluster.audit.cli import main
from cluster.audit.policy_reports import KINDS, reports_by_namespace
from tests.testkit.cluster_commands.findings import error_about
from tests.testkit.cluster_commands.paged_server import Fault, Listed, paged_server

API = "/apis/wgpolicyk8s.io/v1alpha2"
EVENTS = "/apis/events.k8s.io/v1/namespaces/broken/events"
HOMES = ("a", "broken", "gone", "z")
CAUSES = [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]
TREND = "/clusterpolicyreports/gpuward-trend"
TERMINATING = Fault(403, body={"message": "being terminated", "details": {"causes": CAUSES}})


def pod(number: int) -> dict[str, Any]:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    containers = [{"name": "main", "image": "example/x", "env": env}]
    metadata = {"name": "p", "namespace": HOMES[number]}
    return {"metadata": metadata, "spec": {"containers": containers}}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write to an API server that needs no rest."""
    monkeypatch.setattr(sinks, "_SECONDS", 0.0)


def earlier(number: int) -> dict[str, Any]:
    return {"metadata": {"name": "gpuward-audit-2", "namespace": HOMES[number]}}


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(None, 0), (Fault(403, body={"message": "quota"}), 2), (Fault(422, body={"message": "x"}), 2)],
)
def test_a_namespace_that_takes_no_report_keeps_none_from_the_others(
    refusal: Fault | None, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = {
        "/api/v1/pods": Listed(len(HOMES), pod),
        f"{API}/policyreports": Listed(len(HOMES), earlier, "PolicyReport"),
        f"{API}/clusterpolicyreports": Listed(0, earlier, "ClusterPolicyReport"),
    }
    with paged_server(listed) as served:
        served.refusals["/namespaces/gone/"] = TERMINATING
        if refusal:
            served.refusals["/namespaces/broken/"] = refusal
        kubeconfig = served.kubeconfig(tmp_path)
        options = ["--isolated", "--exit-zero", "--publish=policyreport"]
        status_found = main(["--kubeconfig", kubeconfig, *options])
    said = capsys.readouterr().err
    patched = [write for write in served.writes if "PATCH" in write and TREND not in write]
    written = {write.partition("/namespaces/")[2] for write in patched}
    deleted = {write.partition("/namespaces/")[2] for write in served.writes if "DELETE" in write}
    assert {path.partition("/")[0] for path in written} == set(HOMES)
    kept = {"gone", "broken"} if refusal else {"gone"}
    assert {path.partition("/")[0] for path in deleted} == set(HOMES) - kept
    assert "namespace gone" not in said
    assert ("in namespace broken" in said) is bool(refusal)
    assert status_found == status, said


@pytest.mark.parametrize(
    ("image", "fault", "said", "kept"),
    [
        ("x", None, "", set()),
        ("x" * 100_000, None, "reports of 1 namespace stay", {"broken"}),
        ("x", Fault(403), "reports stay, as not everything was listed", set(HOMES)),
    ],
    ids=["all", "a large object", "an incomplete list"],
)
def test_an_object_that_is_not_evaluated_keeps_the_reports_of_its_namespace_alone(
    image: str,
    fault: Fault | None,
    said: str,
    kept: set[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def made(number: int) -> dict[str, Any]:
        found = pod(number)
        if HOMES[number] == "broken":
            found["spec"]["containers"][0]["image"] = image
        return found

    listed = {
        "/api/v1/pods": Listed(len(HOMES), made),
        "/api/v1/resourcequotas": Listed(0, made, "ResourceQuota"),
        f"{API}/policyreports": Listed(len(HOMES), earlier, "PolicyReport"),
        f"{API}/clusterpolicyreports": Listed(0, earlier, "ClusterPolicyReport"),
    }
    with paged_server(listed) as served:
        pages = served.page

        def page(path: str, query: Any) -> bytes | None:
            if fault and path == "/api/v1/pods":
                served.faults = {len(served.requests) - 1: fault}
            return pages(path, query)

        served.page = page  # type: ignore[method-assign]  # one resource alone is forbidden
        options = ["--isolated", "--exit-zero", "--publish=policyreport"]
        main(["--kubeconfig", served.kubeconfig(tmp_path), *options])
    deleted = {write.split("/")[5] for write in served.writes if "DELETE" in write}
    assert deleted == set(HOMES) - kept
    assert said in capsys.readouterr().err
    # A part of the findings would look as if there were fewer on this day.
    assert any(TREND in write for write in served.writes) is (not said)


def test_no_report_is_larger_than_dashboards_can_read() -> None:
    findings = [error_about("a", f"p{n}", "é" * (3_000 * (n % 20 == 0))) for n in range(10_000)]
    [(namespace, reports)] = reports_by_namespace(KINDS["policyreport"], findings)
    sizes = [(len(json.dumps(report)), len(report["results"])) for report in reports]
    assert namespace == "a"
    assert sum(results for _, results in sizes) == 10_000
    assert max(size for size, _ in sizes) < 530_000
    assert max(results for _, results in sizes) <= 1_000


@pytest.mark.parametrize(
    ("code", "status"), [(None, 0), (401, 2), (403, 2), (400, 0), (413, 0), (422, 0)]
)
def test_a_namespace_that_takes_no_events_keeps_none_from_the_others(
    code: int | None,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An Event that is not accepted, which its namespace can bring about, counts as no failure.
    monkeypatch.setattr(sinks, "_MAX_FAILURES", 1 if status == 0 else 10)
    with paged_server({"/api/v1/pods": Listed(len(HOMES), pod)}) as served:
        served.refusals["/namespaces/gone/"] = TERMINATING
        if code:
            served.refusals["/namespaces/broken/"] = Fault(code, body={"message": "no"})
        options = ["--isolated", "--exit-zero", "--events"]
        status_found = main(["--kubeconfig", served.kubeconfig(tmp_path), *options])
    said = capsys.readouterr().err
    assert [write.split("/")[5] for write in served.writes] == [*HOMES]
    assert status_found == status, said
    assert f"Events written at {2 if code else 3} of 4 workloads with errors" in said
    assert ("at Pod broken/p: " in said) is (status == 2)
    assert ("the account needs the rights" in said) is (code == 403)
    left_out = f"gpuward: 1 Event not accepted, first Pod broken/p: POST {EVENTS}: {code} no\n"
    assert (left_out in said) is (status == 0 and code is not None)


@pytest.mark.parametrize("series", [None, "x", [], {}, {"count": "7"}, {"count": 1.5}])
def test_an_event_of_any_content_is_counted(series: object) -> None:
    sent: list[Any] = []

    def request(method: str, _path: str, body: object = None, _type: str = "") -> dict[str, Any]:
        sent.append(body)
        return {"series": series} if method == "GET" else {}

    regarding = Regarding("v1", "Pod", "ml", "a", "uid")
    EventsClient(request).count("a", WarningEvent(regarding, "Reason", "Action", "note", "me"))
    assert sent[1]["series"]["count"] == 2


def test_events_have_a_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "MAX_WORKLOADS", 1)
    with paged_server({"/api/v1/pods": Listed(len(HOMES), pod)}) as served:
        options = ["--isolated", "--exit-zero", "--events"]
        assert main(["--kubeconfig", served.kubeconfig(tmp_path), *options]) == 0
    assert "Events written at 1 of 4 workloads with errors" in capsys.readouterr().err
    assert len(served.writes) == 1


def test_pods_that_share_a_device_or_have_a_sick_one_get_an_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names no pod of another namespace: its owner may not see that one."""

    def given(name: str, namespace: str, started: str, health: str) -> dict[str, Any]:
        found = [{"resourceID": "GPU-1", "health": health}]
        allocated = [{"name": "nvidia.com/gpu", "resources": found}]
        statuses = [{"name": "main", "allocatedResourcesStatus": allocated}]
        status = {"phase": "Running", "startTime": started, "containerStatuses": statuses}
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
        limits = {"limits": {"nvidia.com/gpu": 1}}
        containers = [{"name": "main", "image": "x", "resources": limits}]
        spec = {"nodeName": "n", "containers": containers}
        return {"metadata": metadata, "spec": spec, "status": status}

    def allocated(name: str, user: dict[str, Any]) -> dict[str, Any]:
        result = {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-7"}
        allocation = {"devices": {"results": [result]}}
        metadata = {"name": name, "namespace": "ml", "uid": f"uid-of-{name}"}
        return {"metadata": metadata, "status": {"allocation": allocation, "reservedFor": [user]}}

    pods = [
        given("first", "ml", "2031-03-01T08:00:00Z", "Healthy"),
        given("second", "ml", "2031-03-01T09:00:00Z", "Unhealthy"),
        given("theirs", "other", "2031-03-01T10:00:00Z", "Healthy"),
    ]

    def grouped(name: str, group: str, claim: str) -> dict[str, Any]:
        claims = [{"name": "card", "resourceClaimName": claim}]
        spec = {"schedulingGroup": {"podGroupName": group}, "resourceClaims": claims}
        metadata = {"name": name, "namespace": "ml", "uid": f"uid-of-{name}"}
        return {"metadata": metadata, "spec": {**spec, "nodeName": "n", "containers": []}}

    # The pod of a group has a claim that is reserved for the group, and no other claim.
    pods += [grouped("with-two", "train", "two"), grouped("of-another-group", "other", "two")]
    pods += [grouped("waiting", "train", "one")]
    claims = [
        allocated("one", {"resource": "pods", "name": "with-one", "uid": "uid-of-with-one"}),
        allocated(
            "two", {"resource": "podgroups", "apiGroup": "scheduling.k8s.io", "name": "train"}
        ),
    ]
    listed = {
        "/api/v1/pods": Listed(len(pods), pods.__getitem__),
        "/apis/resource.k8s.io/v1/resourceclaims": Listed(2, claims.__getitem__, "ResourceClaim"),
    }
    with paged_server(listed) as served:
        options = ["--isolated", "--exit-zero", "--events"]
        assert main(["--kubeconfig", served.kubeconfig(tmp_path), *options]) == 0
    assert "gpuward: Events written at 6 of 6 faults of devices\n" in capsys.readouterr().err
    said = {(e["regarding"]["name"], e["reason"]): e["note"] for e in served.written}
    assert {name for name, _ in said} == {"first", "second", "theirs", "with-one", "with-two"}
    for event in served.written:
        regarding = event["regarding"]
        assert (regarding["kind"], event["type"]) == ("Pod", "Warning")
        assert regarding["uid"] == f"uid-of-{regarding['name']}"
    device = "the same device GPU-1 of n as nvidia.com/gpu since 2031-03-01T09:00:00Z: they use"
    unnamed = "a pod in another namespace with the UID uid-of-theirs"
    shared = said["first", "DeviceGivenTwice"]
    assert f"this pod and the pod second, {unnamed} have {device}" in shared
    assert "delete one of the pods" in shared
    assert not any(name in said["theirs", "DeviceGivenTwice"] for name in (" first", " second"))
    sick = "this pod has the unhealthy device GPU-1 of n as nvidia.com/gpu: what runs there may"
    assert sick in said["second", "DeviceUnhealthy"]
    by_claim = "the claim one of this pod and the claim two have the same device gpu-7 of n"
    assert by_claim in said["with-one", "DeviceGivenTwice"]
    assert " since " not in said["with-one", "DeviceGivenTwice"], "it is not known"
