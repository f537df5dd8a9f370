"""Tests of `gpuward audit` on a real control plane."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api.connection import Connection
from cluster.audit import policy_reports, trend
from cluster.audit.cli import main
from cluster.audit.policy_reports import KINDS, publish
from cluster.source.objects import SourceError
from reports.findings import LocatedFinding
from tests.testkit.chart.rendering import render
from tests.testkit.cluster_commands.findings import error_about
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually, free_port
from tests.testkit.control_plane.rights import await_rights
from tests.testkit.control_plane.webhooks import await_webhooks
from tests.testkit.custom_kinds import define_kinds
from tests.testkit.paths import DOCS

BYPASS = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def pod_spec(**container: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example/x", **container}]
    return {"containers": containers, "tolerations": TOLERATIONS}


@pytest.fixture
def node(plane: ControlPlane) -> Iterator[str]:
    """A node with GPUs."""
    plane.gpu_node("audited", gpus=4)
    yield "audited"
    plane.request("DELETE", "/api/v1/nodes/audited")


@pytest.fixture
def namespace(plane: ControlPlane, node: str) -> Iterator[str]:
    """A namespace in mode deny, where admission was away: a Deployment and a Pod use GPUs."""
    namespace = plane.namespace({"gpuward.io/mode": "off"})  # a webhook of other tests may run
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(env=BYPASS)}
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    plane.create(path, {"metadata": {"name": "web"}, "spec": spec})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    honest = pod_spec(resources={"limits": {"nvidia.com/gpu": 1}})
    plane.create(pods, {"metadata": {"name": "honest"}, "spec": honest})
    plane.create(pods, {"metadata": {"name": "web"}, "spec": template["spec"]})

    def phases() -> list[str]:
        return [pod["status"].get("phase") for pod in plane.request("GET", pods).body["items"]]

    eventually(lambda: phases() == ["Running"] * 5, what="all pods run")
    deny = {"metadata": {"labels": {"gpuward.io/mode": "deny"}}}
    home = f"/api/v1/namespaces/{namespace}"
    plane.request("PATCH", home, deny, content_type="application/merge-patch+json")
    yield namespace
    # Another audit counts the findings of all namespaces, which must not change meanwhile.
    plane.kubectl("delete", "deployments,pods", "--all", "-n", namespace, "--force")
    eventually(lambda: not phases(), what="no pod is left")


def test_what_runs_is_evaluated_as_what_it_is(
    plane: ControlPlane, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--isolated", "-n", namespace, "--output=json"]
    assert main(["--kubeconfig", str(plane.kubeconfig), *options]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert (report["not_evaluated"], captured.err) == ([], "")
    # The scheduler's node is no finding, and the pods of the Deployment are no findings of theirs.
    errors = [f for f in report["findings"] if f["level"] == "error"]
    assert [(f["rule"], f["owner"], f["objects"]) for f in errors] == [
        ("visible-devices-env", {"kind": "Deployment", "name": "web"}, 5),
        ("visible-devices-env", {"kind": "Pod", "name": "web"}, 1),
    ]
    gpus, refused = [r["message"] for r in report["remarks"] if r["level"] == "warning"]
    pods = f"namespace {namespace}: 4 running pods on node audited can use GPUs that nobody"
    assert gpus == f"{pods} requested: deployment/web (3), pod/web"
    assert refused.startswith(f"namespace {namespace}: 4 pods would be refused now: ")
    assert "honest" not in gpus + refused
    # An account with one right
    make = ("-n", namespace, "create")
    plane.kubectl(*make, "role", "auditor", "--verb=list", "--resource=pods")
    account = f"--serviceaccount={namespace}:default"
    plane.kubectl(*make, "rolebinding", "auditor", "--role=auditor", account)
    await_rights(plane)
    kubeconfig = plane.kubeconfig_for(plane.token("default", namespace))
    assert main(["--kubeconfig", str(kubeconfig), *options]) == 3
    report = json.loads(capsys.readouterr().out)
    assert {f["owner"]["name"] for f in report["findings"] if f["level"] == "error"} == {"web"}
    missing = sorted(failed["message"].partition(": ")[0] for failed in report["not_evaluated"])
    where = f" in namespace {namespace}"
    assert f"cannot list deployments.apps{where}" in missing
    assert f"cannot list resourcequotas{where}" in missing
    assert f"cannot list pods{where}" not in missing
    remarks = [remark["message"] for remark in report["remarks"]]
    said = [*remarks, *(failed["message"] for failed in report["not_evaluated"])]
    for unknown in ("nodes", "namespaces", f"limitranges{where}", "runtimeclasses.node.k8s.io"):
        end = f"it needs the right to list {unknown}"
        assert sum(text.endswith(end) for text in said) == 1
    assert "4 running pods on node audited can use GPUs" in remarks[-1]


def test_what_keeps_findings_from_being_published_is_named(
    api_server: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--isolated", "-n", "default", "--publish", "policyreport"]
    assert main(["--kubeconfig", str(api_server.kubeconfig), *options]) == 2
    assert "install their CustomResourceDefinition" in capsys.readouterr().err
    assert main(["-f", "x", *options]) == 2
    assert "leave --filename out" in capsys.readouterr().err


@pytest.fixture(scope="module")
def report_kinds(api_server: Cluster, report_definitions: list[Path]) -> Iterator[Cluster]:
    """An API server with the kinds of reports, as their projects define them."""
    define_kinds(api_server, report_definitions)
    yield api_server
    api_server.kubectl("delete", *(f"--filename={file}" for file in report_definitions))


@pytest.mark.parametrize("kind", ["policyreport", "openreports"])
def test_findings_are_kept_in_the_cluster(
    kind: str,
    report_kinds: Cluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy_reports, "_MAX_RESULTS", 2)
    cluster, namespace = report_kinds, report_kinds.namespace()
    resource = str(KINDS[kind].namespaced)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    names = ["a", "b", "c", "d", "a-name-that-is-as-long-as-one-can-be-" + "x" * 216]
    for name in names:
        cluster.create(pods, {"metadata": {"name": name}, "spec": pod_spec(env=BYPASS)})
    # Reports of others, and reports in other namespaces, stay as they are.
    made = KINDS[kind].namespaced
    version = f"{made.group}/{made.versions[0]}"
    theirs = {"apiVersion": version, "kind": made.kind, "metadata": {"name": "theirs"}}
    cluster.create(f"/apis/{version}/namespaces/{namespace}/{made.name}", theirs)

    def published(*arguments: str) -> dict[str, Any]:
        options = ["--isolated", "-n", namespace, "--publish", kind, *arguments]
        main(["--kubeconfig", str(cluster.kubeconfig), *options])
        errors = capsys.readouterr().err
        shown = ("-o=json", "--show-managed-fields")
        items = json.loads(cluster.kubectl("get", resource, "-n", namespace, *shown).stdout)
        return {item["metadata"]["name"]: item for item in items["items"]} | {"errors": errors}

    first = published()
    assert first.pop("errors") == "gpuward: 3 reports published\n"
    assert sorted(first) == ["gpuward-audit-1", "gpuward-audit-2", "gpuward-audit-3", "theirs"]
    results = [result for report in first.values() for result in report.get("results", ())]
    assert sorted(result["resources"][0]["name"] for result in results) == sorted(names)
    assert {(r["rule"], r["result"], r["severity"]) for r in results} == {
        ("visible-devices-env", "fail", "high")
    }
    assert first["gpuward-audit-1"]["summary"]["fail"] == 2
    assert results[0]["properties"]["field"] == "/spec/containers/0/env/0/value"
    [manager] = first["gpuward-audit-1"]["metadata"]["managedFields"]
    assert (manager["manager"], manager["operation"]) == ("gpuward-audit", "Apply")
    # Without a change nothing is written.
    again = published()
    assert again.pop("errors")
    assert again == first
    # The manual's command to clean up after an uninstallation takes these, and no other.
    manual = (DOCS / "uninstall.md").read_text(encoding="utf-8")
    [command] = re.findall(rf"`kubectl (delete {made.name}[., ].*?)`", manual)
    cluster.kubectl(*command.split())
    shown = cluster.kubectl("get", resource, "-n", namespace, "-o", "name").stdout
    assert [line.rpartition("/")[2] for line in shown.split()] == ["theirs"]
    assert published().pop("errors") == "gpuward: 3 reports published\n"
    # What is mended is gone from the reports, and so are reports without findings.
    for name in names[1:]:
        cluster.request("DELETE", f"{pods}/{name}?gracePeriodSeconds=0")
    assert sorted(published()) == ["errors", "gpuward-audit-1", "theirs"]
    cluster.request("DELETE", f"{pods}/a?gracePeriodSeconds=0")
    assert sorted(published()) == ["errors", "theirs"]


@pytest.mark.parametrize("kind", ["policyreport", "openreports"])
def test_the_findings_of_each_day_are_kept(
    kind: str, report_kinds: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, namespace = report_kinds, report_kinds.namespace()
    pods = f"/api/v1/namespaces/{namespace}/pods"
    made = KINDS[kind].cluster
    path = f"/apis/{made.group}/{made.versions[0]}/{made.name}/{trend.NAME}"
    try:
        earlier = trend.Day(datetime.date(2026, 1, 31), 7, 0)
        report = trend.report_of(KINDS[kind], [earlier])
        cluster.create(path.rpartition("/")[0], report)
        kept = []
        for name in ("a", "b"):
            cluster.create(pods, {"metadata": {"name": name}, "spec": pod_spec(env=BYPASS)})
            options = ["--isolated", "--exit-zero", "--publish", kind]
            main(["--kubeconfig", str(cluster.kubeconfig), *options])
            assert "published" in capsys.readouterr().err
            kept.append(trend.days_of(cluster.request("GET", path).body))
        # Of one namespace alone there is nothing to say about the cluster.
        main(["--kubeconfig", str(cluster.kubeconfig), *options, "-n", namespace])
        assert trend.days_of(cluster.request("GET", path).body) == kept[1]
    finally:
        cluster.request("DELETE", path)
    (first, before), (_, after) = kept
    assert first == earlier
    assert after.date == before.date
    assert after.errors == before.errors + 1
    assert before.errors >= 1


def test_more_findings_than_an_object_can_have_are_kept_in_several_reports(
    report_kinds: Cluster,
) -> None:
    cluster, namespace = report_kinds, report_kinds.namespace()
    connection = Connection.like_kubectl(str(cluster.kubeconfig))
    some = [error_about(namespace, f"p{number}") for number in range(2_500)]
    path = f"/apis/openreports.io/v1alpha1/namespaces/{namespace}/reports"

    def published(findings: list[LocatedFinding]) -> list[dict[str, Any]]:
        errors: list[SourceError] = []
        kind = KINDS["openreports"]
        count = publish(connection, kind, findings, namespace, errors.append, prune=True)
        items: list[dict[str, Any]] = cluster.request("GET", path).body["items"]
        assert (errors, len(items)) == ([], count)
        return items

    kept = published(some)
    assert len(kept) == 3
    results = [result for report in kept for result in report["results"]]
    names = [result["resources"][0]["name"] for result in results]
    assert sorted(names) == sorted(f"p{number}" for number in range(2_500))
    assert sum(report["summary"]["fail"] for report in kept) == 2_500
    assert [report["metadata"]["name"] for report in published(some[:1])] == ["gpuward-audit-1"]


def test_a_webhook_that_fails_in_one_namespace_keeps_no_report_from_the_others(
    report_kinds: Cluster,
) -> None:
    cluster = report_kinds
    homes = [cluster.namespace() for _ in range(3)]
    bad = homes[1]
    nobody = {"url": f"https://127.0.0.1:{free_port()}/"}
    rule = {"apiGroups": ["wgpolicyk8s.io"], "apiVersions": ["*"], "operations": ["*"]}
    hook = {
        "name": "fails.example.com",
        "clientConfig": nobody,
        "rules": [rule | {"resources": ["policyreports"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bad}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    path = "/apis/wgpolicyk8s.io/v1alpha2/namespaces/{}/policyreports"
    connection = Connection.like_kubectl(str(cluster.kubeconfig))

    def published(*names: str) -> tuple[list[str], list[float]]:
        errors: list[SourceError] = []
        waits: list[float] = []
        findings = [error_about(home, name) for home in homes for name in names]
        publish(
            connection,
            KINDS["policyreport"],
            findings,
            None,
            errors.append,
            prune=True,
            wait=waits.append,
        )
        return [str(error) for error in errors], waits

    assert published("a") == ([], [])
    cluster.create(kind, {"metadata": {"name": bad}, "webhooks": [hook]})
    await_webhooks(cluster)

    def publishing_errors() -> list[str]:
        return published("a", "b")[0]

    [error] = eventually(publishing_errors, what="the webhook is called")
    assert f"cannot write gpuward-audit-1 in namespace {bad}: " in error
    assert 'failed calling webhook "fails.example.com"' in error
    kept = [cluster.request("GET", path.format(home)).body["items"] for home in homes]
    assert [len(report["results"]) for [report] in kept] == [2, 1, 2]
    # Without findings, the reports of the others are deleted.
    errors, waits = published()
    assert (len(errors), len(waits)) == (1, 5)
    assert [len(cluster.request("GET", path.format(h)).body["items"]) for h in homes] == [0, 1, 0]
    assert cluster.request("DELETE", f"{kind}/{bad}").status == 200


def test_a_workload_with_errors_gets_one_event_that_counts_the_audits(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = plane.namespace()
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(env=BYPASS)}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    plane.create(path, {"metadata": {"name": "web"}, "spec": spec})
    honest = {"metadata": {"name": "honest"}, "spec": pod_spec()}
    plane.create(f"/api/v1/namespaces/{namespace}/pods", honest)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    eventually(lambda: len(plane.request("GET", pods).body["items"]) == 4, what="all pods exist")

    def audited() -> list[dict[str, Any]]:
        options = ["--isolated", "-n", namespace, "--events", "--exit-zero"]
        assert main(["--kubeconfig", str(plane.kubeconfig), *options]) == 0
        assert capsys.readouterr().err == "gpuward: Events written at 1 of 1 workload with errors\n"
        events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        items: list[dict[str, Any]] = plane.request("GET", events).body["items"]
        return [event for event in items if event["reason"] == "GpuPolicyViolation"]

    [event] = audited()
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Deployment", "web")
    assert 'gpuward audit: [visible-devices-env] container "main"' in event["note"]
    [event] = audited()
    assert event["series"]["count"] == 2
    shown = plane.kubectl("describe", "deployment", "web", "-n", namespace).stdout
    assert "(x2 over " in shown
    assert event["note"] in shown
    # Other errors are another Event.
    worse = pod_spec(env=BYPASS, securityContext={"privileged": True})["containers"]
    change = {"spec": {"template": {"spec": {"containers": worse}}}}
    merge = "application/merge-patch+json"
    changed = plane.request("PATCH", f"{path}/web", change, content_type=merge)
    generation = changed.body["metadata"]["generation"]

    def has_new_pod() -> bool:
        """Then its ReplicaSet is there, too, by which an audit knows the owner."""
        status = plane.request("GET", f"{path}/web").body["status"]
        is_seen: bool = status["observedGeneration"] == generation
        return is_seen and status.get("updatedReplicas", 0) > 0

    eventually(has_new_pod, what="the Deployment has a pod with the change")
    assert len(audited()) == 2


@pytest.fixture
def claiming(api_server: Cluster) -> Iterator[str]:
    """A namespace whose pods and claims are deleted: other tests would see a device given twice."""
    namespace = api_server.namespace()
    yield namespace
    for kind in ("pods", "resourceclaims.resource.k8s.io"):
        options = ("--all", "-n", namespace, "--force", "--grace-period=0", "--wait=false")
        api_server.kubectl("delete", kind, *options)
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    eventually(
        lambda: not api_server.request("GET", path).body["items"], what="the claims are gone"
    )


def test_pods_whose_claims_have_one_device_get_an_event_that_counts_the_audits(
    api_server: Cluster, claiming: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, namespace = api_server, claiming
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    result = {"request": "r", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}
    for name in ("one", "two"):
        uses = [{"name": "card", "resourceClaimName": name}]
        made = cluster.create(
            f"/api/v1/namespaces/{namespace}/pods",
            {"metadata": {"name": f"uses-{name}"}, "spec": {**pod_spec(), "resourceClaims": uses}},
        )
        spec = {"devices": {"requests": [request]}}
        claim = cluster.create(claims, {"metadata": {"name": name}, "spec": spec})
        user = {"resource": "pods", "name": f"uses-{name}", "uid": made["metadata"]["uid"]}
        claim["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [user],
        }
        answer = cluster.request("PUT", f"{claims}/{name}/status", claim)
        assert answer.status == 200, answer.body
    options = ["--isolated", "-n", namespace, "--events", "--exit-zero", "-q"]
    for _ in range(2):
        assert main(["--kubeconfig", str(cluster.kubeconfig), *options]) == 0
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    items: list[dict[str, Any]] = cluster.request("GET", path).body["items"]
    found = {
        event["regarding"]["name"]: event
        for event in items
        if event["reason"] == "DeviceGivenTwice"
    }
    assert found.keys() == {"uses-one", "uses-two"}
    both = "the claim one of this pod and the claim two have the same device gpu-0 of n"
    assert both in found["uses-one"]["note"]
    assert {event["series"]["count"] for event in found.values()} == {2}
    assert f"claim {namespace}/one, claim {namespace}/two" in capsys.readouterr().out


def test_no_name_and_no_edited_count_keep_an_event_from_being_written(
    api_server: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, namespace = api_server, api_server.namespace()
    metadata = {"name": "a" * 199 + "-" + "b" * 20}
    spec = pod_spec(env=BYPASS)
    cluster.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"

    def audited() -> dict[str, Any]:
        options = ["--isolated", "-n", namespace, "--events", "--exit-zero"]
        assert main(["--kubeconfig", str(cluster.kubeconfig), *options]) == 0
        assert capsys.readouterr().err == "gpuward: Events written at 1 of 1 workload with errors\n"
        items: list[dict[str, Any]] = cluster.request("GET", path).body["items"]
        [event] = [event for event in items if event["reason"] == "GpuPolicyViolation"]
        return event

    name = audited()["metadata"]["name"]
    edited = f"/api/v1/namespaces/{namespace}/events/{name}"
    for count, counted in ((2**31 - 1, 2**31 - 1), (-5, 2), (7, 8)):
        change = {"series": {"count": count}}
        merge = "application/merge-patch+json"
        assert cluster.request("PATCH", edited, change, content_type=merge).status == 200
        assert audited()["series"]["count"] == counted


@pytest.mark.parametrize("events", ["false", "true"])
def test_the_account_of_the_chart_may_audit_and_nothing_else(
    events: str, report_kinds: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, namespace = report_kinds, report_kinds.namespace()
    made = [
        item
        for item in render(
            f"audit: {{enabled: true, publish: policyreport, events: {events}}}",
            namespace=namespace,
        )
        if item["metadata"]["name"] == "gpuward-audit" and item["kind"] != "CronJob"
    ]
    assert [item["kind"] for item in made] == [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
    ]
    manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    cluster.kubectl("apply", "-f", "-", input=manifests)
    await_rights(cluster)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.create(pods, {"metadata": {"name": "a"}, "spec": pod_spec(env=BYPASS)})
    token = cluster.token("gpuward-audit", namespace)
    options = ["--isolated", "--publish=policyreport", "--exit-zero", "--output=json"]
    assert main(["--kubeconfig", str(cluster.kubeconfig_for(token)), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["not_evaluated"] == []
    assert f"{namespace}" in {finding["namespace"] for finding in report["findings"]}
    # Once more, when there is something to delete
    cluster.request("DELETE", f"{pods}/a?gracePeriodSeconds=0")
    assert main(["--kubeconfig", str(cluster.kubeconfig_for(token)), *options]) == 0
    found = cluster.kubectl("get", "policyreports.wgpolicyk8s.io", "-n", namespace, "-o=name")
    assert found.stdout == ""
    cluster.create(pods, {"metadata": {"name": "b"}, "spec": pod_spec(env=BYPASS)})
    options += ["--events", "-n", namespace]
    status = main(["--kubeconfig", str(cluster.kubeconfig_for(token)), *options])
    missing = "needs the rights to get, create and patch events.events.k8s.io"
    assert (status, missing in capsys.readouterr().err) == (
        (0, False) if events == "true" else (2, True)
    )
    cluster.request("DELETE", f"{pods}/b?gracePeriodSeconds=0")
    client = cluster.client(token)
    for method, path in (
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/configmaps"),
        ("GET", "/api/v1/namespaces/default"),
        ("GET", f"{pods}/a"),
        ("DELETE", f"{pods}/a"),
        ("DELETE", pods),
    ):
        assert client.request(method, path).status == 403, (method, path)
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", "gpuward-audit")
