"""The watch over the webhook configurations, in a cluster: what it says about an installation."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.api.errors import ConfigurationKind
from tests.testkit.chart import certificate_modes
from tests.testkit.chart.installation import ADMISSION, SLOW_MACHINE, Installation, merge_values
from tests.testkit.control_plane.processes import TIMEOUT, eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]
# These are about what is installed, whichever helm has installed it.
pytestmark = pytest.mark.parametrize("installation", ["helm4"], indirect=True, scope="module")

METRIC = "gpuward_registration_as_expected"
BOTH_KINDS = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
KINDS = tuple(kind.value for kind in ConfigurationKind)
NO_NAMESPACE = [
    {
        "op": "add",
        "path": "/webhooks/0/namespaceSelector/matchExpressions/-",
        "value": {"key": "no-such-label", "operator": "Exists"},
    }
]


def samples(installation: Installation, component: str) -> dict[str, float]:
    """The samples of the metric, by kind; none while no pod answers."""
    for pod in installation.pods(component):
        try:
            with urllib.request.urlopen(f"http://{pod.endpoint('metrics')}/metrics") as answer:
                families = text_string_to_metric_families(answer.read().decode())
        except OSError:
            continue
        found = [s for family in families if family.name == METRIC for s in family.samples]
        return {sample.labels["kind"]: sample.value for sample in found}
    return {}


def become(installation: Installation, component: str, mutating: int, validating: int) -> None:
    """Wait until the metric has these values."""
    wanted = dict(zip(KINDS, (mutating, validating), strict=True))
    eventually(
        lambda: samples(installation, component) == wanted,
        seconds=100,
        what=f"the metric is {wanted}",
    )


def events(installation: Installation, component: str) -> list[str]:
    """The messages of the events about changes that a pod of `component` has created."""
    done = installation.plane.kubectl("get", "events", "-n", installation.namespace, "-o", "json")
    found: list[Any] = json.loads(done.stdout)["items"]
    return [
        event["message"]
        for event in found
        if event["reason"] == "RegistrationChanged"
        and event["involvedObject"]["name"].startswith(f"gpuward-{component}-")
    ]


def report_at_once(installation: Installation, deployment: str) -> None:
    """Let the pod of a Deployment report changes without waiting for minutes."""
    path = "/spec/template/spec/containers/0/args/-"
    patch = json.dumps([{"op": "add", "path": path, "value": "--settle-seconds=0.001"}])
    target = (f"deployment/{deployment}", "-n", installation.namespace)
    installation.plane.kubectl("patch", *target, "--type=json", f"--patch={patch}")
    installation.plane.kubectl("rollout", "status", *target, TIMEOUT)


def select_no_namespace(installation: Installation) -> None:
    """Change the selector of a validating webhook, so that it matches no namespace."""
    path = f"{ADMISSION}/validatingwebhookconfigurations/gpuward"
    content_type = "application/json-patch+json"
    answer = installation.plane.request("PATCH", path, NO_NAMESPACE, content_type=content_type)
    assert answer.status == 200, answer


def check_report(installation: Installation, component: str) -> None:
    """Check that the pod of `component` reports a changed selector as an Event."""
    report_at_once(installation, f"gpuward-{component}")
    become(installation, component, 1, 1)
    select_no_namespace(installation)
    become(installation, component, 1, 0)
    (message,) = eventually(lambda: events(installation, component), seconds=100, what="an event")
    difference = "deny.gpuward.io: namespaceSelector.matchExpressions differs"
    assert message == f"validatingwebhookconfigurations/gpuward: {difference}"


def test_the_certificate_controller_watches(installation: Installation) -> None:
    installation.install(SLOW_MACHINE)
    become(installation, "certs", 1, 1)
    # An upgrade: the kubelet updates the mounted expectation.
    changed = merge_values(SLOW_MACHINE, {"mode": "deny", "minimumMode": "warn"})
    installation.upgrade(changed)
    become(installation, "certs", 1, 1)
    installation.plane.kubectl("delete", BOTH_KINDS, "gpuward")
    become(installation, "certs", 0, 0)
    # Helm, not gpuward, creates them again, without the caBundle that the controller writes.
    installation.upgrade(changed)
    become(installation, "certs", 1, 1)
    check_report(installation, "certs")
    installation.uninstall()


def test_without_the_controller_a_pod_of_its_own_watches(installation: Installation) -> None:
    # The namespace exists already: the test before has left it.
    signer = certificate_modes.new_signer(installation)
    certificate_modes.fill_secret(installation, signer)
    chosen = {
        "mode": "existingSecret",
        "caBundle": signer.certificate_pem.decode(),
        "existingSecret": {"name": certificate_modes.SECRETS["existingSecret"]},
    }
    installation.install(merge_values(SLOW_MACHINE, {"certificates": chosen}))
    check_report(installation, "watch")
    assert not installation.pods("certs")
