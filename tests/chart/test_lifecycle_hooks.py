"""The chart's hooks, with what they may do and nothing more: the test, and the removal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster.api import ConfigurationKind
from tests.testkit.chart.installation import ADMISSION, PATIENT, Installed
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]

BOTH = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
FOREIGN = [{"op": "replace", "path": "/webhooks/0/name", "value": "pods.example.com"}]
WRONG = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]
CONTENT_TYPE = "application/json-patch+json"


@pytest.fixture(scope="module")
def first(installed: Installed) -> Installed:
    """An installation."""
    installed.install(PATIENT)
    eventually(lambda: b"" not in installed.bundles(), what="the bundle is published")
    return installed


@pytest.fixture
def serving(first: Installed) -> Iterator[Installed]:
    """The same, whole, whatever has been done to it."""
    whole = first.webhooks()
    yield first
    if len(first.pods()) < 2:
        first.restart()
    if first.webhooks() != whole:
        first.plane.kubectl("delete", BOTH, "gpuward", "--ignore-not-found")
        first.upgrade(PATIENT)
        first.publish()


def hook(installed: Installed, component: str) -> tuple[Any, str]:
    """Make all of a hook but its work; a pod that does the work, and who it is."""
    hooks = yaml.safe_load_all(installed.helm("get hooks").stdout)
    ours = [
        each
        for each in hooks
        if each["metadata"]["labels"]["app.kubernetes.io/component"] == component
    ]
    rights = [each for each in ours if each["kind"] not in ("Job", "Pod")]
    (work,) = (each for each in ours if each["kind"] in ("Job", "Pod"))
    made = json.dumps({"apiVersion": "v1", "kind": "List", "items": rights})
    installed.plane.kubectl("apply", "-n", installed.namespace, "-f", "-", input=made)
    template = work["spec"]["template"] if work["kind"] == "Job" else work
    # Here nobody waits for what will not come.
    (container,) = template["spec"]["containers"]
    container["args"] = [a for a in container["args"] if not a.startswith("--wait")]
    labels = template["metadata"]["labels"]
    metadata = {"name": f"{component}-by-hand", "labels": labels, "namespace": installed.namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    return pod, template["spec"]["serviceAccountName"]


def ran(installed: Installed, component: str) -> tuple[str, str]:
    """Run a hook's command in a pod of its own; the phase that the pod ended in, and its log."""
    pod, _ = hook(installed, component)
    path = f"/api/v1/namespaces/{installed.namespace}/pods"
    name = pod["metadata"]["name"]
    installed.plane.create(path, pod)

    def phase() -> str:
        found: str = installed.plane.request("GET", f"{path}/{name}").body["status"]["phase"]
        return found if found in ("Succeeded", "Failed") else ""

    ended = eventually(phase, what=f"{name} ends")
    log = installed.kubelet.log(installed.namespace, name)
    installed.plane.kubectl("delete", "pod", name, "-n", installed.namespace)
    return ended, log


def change(installed: Installed, kind: ConfigurationKind, patch: Any) -> None:
    """Change a configuration by hand."""
    path = f"{ADMISSION}/{kind.value}/gpuward"
    answer = installed.plane.request("PATCH", path, patch, content_type=CONTENT_TYPE)
    assert answer.status == 200, answer


def test_helm_test_calls_the_webhook(serving: Installed) -> None:
    done = serving.helm("test", "--timeout=100s")
    assert "Succeeded" in done.stdout
    ended, log = ran(serving, "test")
    assert ended == "Succeeded", log


def test_the_test_fails_where_api_servers_do_not_trust_the_webhook(serving: Installed) -> None:

    def failed() -> str:
        # Another time if it was mended meanwhile.
        change(serving, ConfigurationKind.VALIDATING, WRONG)
        ended, log = ran(serving, "test")
        return log if ended == "Failed" else ""

    log = eventually(failed, what="the test fails")
    assert "caBundle" in log


def test_the_test_fails_where_nobody_answers(serving: Installed) -> None:
    for pod in serving.pods():
        pod.kill()
    eventually(lambda: not serving.pods(), what="no process is left")
    ended, log = ran(serving, "test")
    assert ended == "Failed"
    assert "nobody" in log, log


def test_the_removal_leaves_alone_what_is_not_ours(serving: Installed) -> None:
    change(serving, ConfigurationKind.MUTATING, FOREIGN)
    ended, log = ran(serving, "removal")
    assert ended == "Failed"
    assert "pods.example.com" in log
    found = {
        kind: serving.plane.request("GET", f"{ADMISSION}/{kind.value}/gpuward")
        for kind in ConfigurationKind
    }
    assert found[ConfigurationKind.MUTATING].status == 200
    assert found[ConfigurationKind.VALIDATING].status == 404


@pytest.mark.parametrize("component", ["test", "removal"])
def test_a_hook_may_do_nothing_else(serving: Installed, component: str) -> None:
    _, account = hook(serving, component)
    client = serving.plane.client(serving.plane.token(account, serving.namespace))
    own = f"/api/v1/namespaces/{serving.namespace}"
    for path in (
        f"{own}/secrets/gpuward-ca",
        f"{own}/pods",
        f"{ADMISSION}/{ConfigurationKind.MUTATING.value}",
    ):
        assert client.request("GET", path).status == 403, path
    other = f"{ADMISSION}/{ConfigurationKind.MUTATING.value}/another"
    assert client.request("DELETE", other).status == 403
    ours = f"{ADMISSION}/{ConfigurationKind.MUTATING.value}/gpuward"
    assert client.request("PATCH", ours, FOREIGN, content_type=CONTENT_TYPE).status == 403
    if component == "test":
        assert client.request("DELETE", ours).status == 403
