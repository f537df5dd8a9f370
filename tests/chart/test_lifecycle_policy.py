"""A policy that cannot be used: helm fails before it changes anything, and `helm test` fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.installation import (
    ADMISSION,
    CHART,
    SLOW_MACHINE,
    Installation,
    merge_values,
)
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from tests.testkit.end_to_end.steps import patch

pytest_plugins = ["tests.testkit.chart.fixtures"]

CHECKED: dict[str, Any] = merge_values(SLOW_MACHINE, {"policyHook": {"enabled": True}})
EXCEPTION = {"rules": ["absurd-count"], "match": {"namespace": "tests"}, "reason": "benchmarks"}
# The schema of the values accepts this date; only gpuward itself knows that it does not exist.
NO_SUCH_DAY = {"policy": {"exceptions": [{**EXCEPTION, "expires": "2031-02-31"}]}}
# The same as the text of a file, whose lines the message names.
TEXT = """\
apiVersion: gpuward.io/v1
kind: Policy
exceptions:
  - rules: [absurd-count]
    match: {namespace: tests}
    reason: benchmarks
    expires: 2031-02-31
"""
MESSAGE = "'2031-02-31' is not a date"


@pytest.fixture(scope="module")
def refused_at_first(installation: Installation) -> Installation:
    """An installation whose first attempt had a policy that gpuward refuses."""
    done = installation.install(merge_values(CHECKED, NO_SUCH_DAY), check=False)
    assert done.returncode
    # Helm shows the log of a failed hook.
    assert MESSAGE in done.stdout + done.stderr
    assert MESSAGE in check_log(installation)
    assert installation.pods() == []
    for kind in ("mutating", "validating"):
        path = f"{ADMISSION}/{kind}webhookconfigurations/gpuward"
        assert installation.plane.request("GET", path).status == 404
    return installation


@pytest.fixture(scope="module")
def installed(refused_at_first: Installation) -> Installation:
    """The installation with a good policy, by the command that the documentation names."""
    arguments = (str(CHART), "--install", "--wait", TIMEOUT)
    refused_at_first.helm("upgrade", *arguments, values=CHECKED)
    return refused_at_first


def state(installation: Installation) -> tuple[Any, ...]:
    """Return what an upgrade could change: the policy, the webhooks' selectors, and the pods."""
    selectors = {name: w["namespaceSelector"] for name, w in installation.webhooks().items()}
    policy = installation.get("configmap/gpuward-policy")["data"]
    return policy, selectors, {pod.name for pod in installation.pods()}


def check_log(installation: Installation) -> str:
    """The log of the failed Job, by the command of the documentation."""
    job = ("job/gpuward-policy-check", "-n", installation.namespace)
    return installation.plane.kubectl("logs", *job).stdout


def policy_event(installation: Installation) -> str:
    """The message of the Event about a refused policy; empty if there is none."""
    fields = ("--field-selector=reason=PolicyRefused", "-o", "jsonpath={.items[0].message}")
    done = installation.plane.kubectl(
        "get", "events", "-n", installation.namespace, *fields, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def test_an_upgrade_with_a_bad_policy_changes_nothing(installed: Installation) -> None:
    before = state(installed)
    values = merge_values(CHECKED, {"policyText": TEXT, "mode": "deny"})
    assert installed.upgrade(values, check=False).returncode
    assert f"/gpuward.yaml:7:5: {MESSAGE}" in check_log(installed)
    assert state(installed) == before
    # The next good upgrade removes what the failed one left.
    installed.upgrade(CHECKED)
    jobs = installed.plane.kubectl("get", "job,configmap", "-n", installed.namespace, "-o", "name")
    assert "policy-check" not in jobs.stdout


def test_helm_test_fails_on_a_refused_policy_and_new_pods_use_the_released_one(
    installed: Installation,
) -> None:
    assert "Succeeded" in installed.helm("test", TIMEOUT).stdout
    text = "apiVersion: gpuward.io/v1\nkind: Policy\nrules: {no-such-rule: {}}\n"
    path = f"/api/v1/namespaces/{installed.namespace}/configmaps/gpuward-policy"
    assert patch(installed.plane, path, {"data": {"gpuward.yaml": text}}).status == 200
    done = installed.helm("test", TIMEOUT, check=False)
    assert done.returncode
    assert "gpuward-policy-test" in done.stdout + done.stderr
    log = installed.kubelet.log(installed.namespace, "gpuward-policy-test")
    assert "there is no rule 'no-such-rule'" in log
    # The certificate controller watches the policy too.
    message = eventually(lambda: policy_event(installed), seconds=100, what="an event")
    assert "there is no rule 'no-such-rule'" in message
    # `rollout status` succeeds only if pods with the broken policy become ready.
    installed.restart()
    namespace = installed.plane.namespace()
    eventually(
        lambda: enforcement_in(installed.plane, namespace) == "warned", what="new pods answer"
    )
    for pod in installed.pods():
        log = installed.kubelet.log(pod.namespace, pod.manifest["metadata"]["name"])
        assert '"policy refused"' in log
