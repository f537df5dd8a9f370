"""Day two of an installation: namespaces change to `deny` in bulk, and what passed is found."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cluster.audit.cli import main as audit
from cluster.modes.cli import main as modes
from cluster.webhooks.cli import main as webhooks
from policies.loading import load_policy
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.chart.installation import SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.control_plane.rights import await_rights

pytest_plugins = ["tests.testkit.chart.fixtures"]

BAD_POD = pod(container(**variable("all")))
#: A policy that refuses what the default one only warns about
POLICY = {"rules": {"runtime-socket": {"action": "deny"}}}
SOCKET = {
    "nodeSelector": {"nvidia.com/gpu.present": "true"},
    "containers": [
        {
            "name": "main",
            "image": "example.com/train:1",
            "volumeMounts": [{"name": "socket", "mountPath": "/run/containerd"}],
        }
    ],
    "volumes": [{"name": "socket", "hostPath": {"path": "/run/containerd"}}],
}
_TEAMS = itertools.count()
Modes = Callable[..., tuple[int, Any, str]]


@pytest.fixture(scope="module")
def installed(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installation]:
    with Installation(chart_plane, kubelet, "helm4") as installation:
        installation.install(merge_values(SLOW_MACHINE, {"mode": "warn", "policy": POLICY}))
        installation.publish_ca_bundle()
        yield installation


@pytest.fixture
def run(installed: Installation, capsys: pytest.CaptureFixture[str]) -> Modes:
    """Run the command: its status, its namespaces by name, and what it says on standard error."""

    def run_it(*arguments: str, kubeconfig: Path = installed.plane.kubeconfig) -> Any:
        status = modes(["--kubeconfig", str(kubeconfig), "-o", "json", *arguments])
        captured = capsys.readouterr()
        listed = json.loads(captured.out)["namespaces"] if captured.out else []
        return status, {each["namespace"]: each for each in listed}, captured.err

    return run_it


def label(plane: ControlPlane, namespace: str) -> str | None:
    metadata = plane.request("GET", f"/api/v1/namespaces/{namespace}").body["metadata"]
    found: str | None = metadata["labels"].get("gpuward.io/mode")
    return found


@pytest.fixture
def namespaces(installed: Installation) -> tuple[str, str]:
    """Two namespaces of a team; in the second is a pod that the cluster's policy refuses."""
    plane = installed.plane
    team = {"team": f"t{next(_TEAMS)}"}
    clean, hit = plane.namespace(team), plane.namespace(team)
    path = f"/api/v1/namespaces/{hit}/pods"
    plane.create(path, {"metadata": {"name": "builder"}, "spec": SOCKET})
    return clean, hit


def test_a_dry_run_says_whom_it_hits_and_writes_nothing(
    installed: Installation, run: Modes, namespaces: tuple[str, str]
) -> None:
    plane, (clean, hit) = installed.plane, namespaces
    status, found, errors = run(clean, hit, "--set", "deny")
    assert (status, errors) == (1, "")
    wanted = {"mode": "warn", "newMode": "deny", "changed": True}
    assert found[clean] == {
        "namespace": clean,
        "wouldBeRefused": [],
        "wouldBeKeptOff": [],
        **wanted,
    }
    assert found[hit] == {
        "namespace": hit,
        "wouldBeRefused": ["pod/builder"],
        "wouldBeKeptOff": [],
        **wanted,
    }
    assert (label(plane, clean), label(plane, hit)) == (None, None)


def test_only_namespaces_without_refusals_are_changed_unless_somebody_says_so(
    installed: Installation, run: Modes, namespaces: tuple[str, str]
) -> None:
    plane, (clean, hit) = installed.plane, namespaces
    labels = plane.request("GET", f"/api/v1/namespaces/{clean}").body["metadata"]["labels"]
    selector = ("-l", f"team={labels['team']}")
    status, found, errors = run(*selector, "--set", "deny", "--write")
    assert (status, {*found}) == (1, {clean, hit})
    assert (label(plane, clean), label(plane, hit)) == ("deny", None)
    assert f"namespace/{hit} left as it is: mode deny would refuse what is in it" in errors
    eventually(
        lambda: create(plane, clean, BAD_POD, dry_run=True).status == 403,
        what="gpuward refuses in the namespace",
    )
    status, found, _ = run(*selector, "--set", "deny", "--write", "--with-refusals")
    assert (status, found[clean]["changed"], found[hit]["changed"]) == (1, False, True)
    assert label(plane, hit) == "deny"
    # Back again, without a look at refusals; only the label has ever been written.
    assert run(*selector, "--set", "warn", "--write")[0] == 0
    assert (label(plane, clean), label(plane, hit)) == ("warn", "warn")
    managed = plane.request("GET", f"/api/v1/namespaces/{hit}").body["metadata"]["managedFields"]
    (own,) = (each for each in managed if each["manager"] == "gpuward-modes")
    assert own["fieldsV1"] == {"f:metadata": {"f:labels": {"f:gpuward.io/mode": {}}}}


def test_an_account_that_may_only_look_changes_nothing(
    installed: Installation, run: Modes, namespaces: tuple[str, str]
) -> None:
    plane, (clean, _) = installed.plane, namespaces
    name = f"modes-{clean}"
    plane.kubectl("create", "clusterrole", name, "--verb=get,list", "--resource=*.*")
    account = f"--serviceaccount={clean}:default"
    plane.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
    await_rights(plane)
    kubeconfig = plane.kubeconfig_for(plane.token("default", clean))
    try:
        assert run(clean, "--set", "deny", kubeconfig=kubeconfig)[0] == 0
        status, _, errors = run(clean, "--set", "deny", "--write", kubeconfig=kubeconfig)
        assert (status, label(plane, clean)) == (2, None)
        assert "it needs the right to patch namespaces" in errors
    finally:
        plane.kubectl("delete", "clusterrole,clusterrolebinding", name)


def test_what_webhooks_exclude_gets_no_label(installed: Installation, run: Modes) -> None:
    status, found, _ = run(installed.namespace, "kube-system", "--set", "deny", "--write")
    assert status == 0
    assert {(each["newMode"], each["changed"]) for each in found.values()} == {(None, False)}
    assert label(installed.plane, "kube-system") is None


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("no-such-namespace", "--set", "deny"), "there is no namespace no-such-namespace"),
        (
            ("-l", "team=nobody", "--set", "deny"),
            "there is no namespace with the labels team=nobody",
        ),
        (("-l", "=", "--set", "deny"), "cannot list namespaces"),
    ],
)
def test_nothing_is_done_for_namespaces_that_are_not_there(
    run: Modes, arguments: tuple[str, ...], part: str
) -> None:
    status, found, errors = run(*arguments, "--write")
    assert (status, found) == (2, {})
    assert part in errors


def test_the_policy_of_the_cluster_is_printed_as_a_policy_file(
    installed: Installation,
    namespaces: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--kubeconfig", str(installed.plane.kubeconfig))
    assert webhooks(["policy", *options]) == 0
    file = tmp_path / "cluster-policy.yaml"
    file.write_text(capsys.readouterr().out)
    assert load_policy(file.read_text(), str(file)).rule_set()
    listed = ("-n", namespaces[1], "--refused-by", "webhook", "-o", "json")
    assert audit([*options, *listed, "--policy", str(file)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [finding["rule"] for finding in report["findings"]] == ["runtime-socket"]


def test_what_was_created_in_an_outage_is_found(
    installed: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    plane = installed.plane
    namespace = plane.namespace({"gpuward.io/mode": "deny"})
    eventually(
        lambda: create(plane, namespace, BAD_POD, dry_run=True).status == 403,
        what="gpuward refuses in the namespace",
    )
    installed.plane.kubectl(
        *("scale", "deployment/gpuward", "--replicas=0", "-n", installed.namespace)
    )
    path = f"/api/v1/namespaces/{installed.namespace}/pods"
    webhook = "labelSelector=app.kubernetes.io/component%3Dwebhook"
    pods = f"{path}?{webhook}"
    eventually(lambda: not plane.request("GET", pods).body["items"], what="all replicas are gone")
    eventually(
        lambda: create(plane, namespace, BAD_POD, dry_run=True).status == 201,
        what="nobody answers as gpuward",
    )
    began = datetime.now(UTC)
    assert create(plane, namespace, BAD_POD).status == 201
    installed.plane.kubectl(
        *("scale", "deployment/gpuward", "--replicas=2", "-n", installed.namespace)
    )

    def found(*times: str) -> list[str]:
        options = ("--kubeconfig", str(plane.kubeconfig), "-n", namespace, "--isolated")
        audit([*options, "--refused-by", "webhook", "-o", "json", *times])
        report = json.loads(capsys.readouterr().out)
        passed = any("1 pod would be refused now" in r["message"] for r in report["remarks"])
        assert passed == bool(report["findings"])
        return [finding["name"] for finding in report["findings"]]

    def moment(seconds: float) -> str:
        return (began + timedelta(seconds=seconds)).isoformat()

    assert found("--since-time", moment(-1), "--until-time", moment(60)) == ["trainer"]
    assert found("--since", "1h") == ["trainer"]
    assert found("--since-time", moment(3600)) == []
    assert found("--until-time", moment(-60)) == []
