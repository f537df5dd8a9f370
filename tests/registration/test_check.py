"""Tests of `gpuward webhooks check` on a real API server, with the rights of the chart's test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api.errors import ConfigurationKind
from tests.testkit.admission.server_process import Server, folder_of
from tests.testkit.chart.permissions import (
    CHECK_ACCOUNT,
    create_check_account,
    delete_check_permissions,
)
from tests.testkit.control_plane.pki import Authority
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually, free_port
from tests.testkit.registration.checked_installation import ENVIRONMENT, PORT, SERVICE, Installation
from webhook.registration import MODES

KINDS = (ConfigurationKind.VALIDATING, ConfigurationKind.MUTATING)
PATHS = [f"/{kind}/{mode.word}" for kind in ("validate", "mutate") for mode in MODES]


@pytest.fixture(scope="module")
def installation(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("check")
    namespace = plane.namespace()
    address = plane.expose(SERVICE, namespace, PORT)
    pair = plane.authority.issue("gpuward-checked", hosts=[f"{SERVICE}.{namespace}.svc"])
    server = Server(
        processes,
        folder,
        folder_of(pair, folder / "certificate"),
        name="gpuward-checked",
        listen=f"{address}:{PORT}",
        arguments=("--drain-seconds", "0"),
    )
    create_check_account(plane, namespace, f"gpuward-{namespace}")
    kubeconfig = plane.kubeconfig_for(plane.token(CHECK_ACCOUNT, namespace))
    yield Installation(plane, namespace, server, kubeconfig, folder)
    server.stop()
    delete_check_permissions(plane, f"gpuward-{namespace}")


def test_every_webhook_answers(installation: Installation) -> None:
    with installation.registered():
        done = installation.check()
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last, note = done.stdout.splitlines()
    assert note.startswith("note: not compared with what the release should have")
    assert [line.partition(": ")[0] for line in lines] == [
        installation.url + path for path in PATHS
    ]
    refusal, *others = (line.partition(": ")[2] for line in lines)
    assert refusal.startswith("answers, and refuses the sample; certificate until 20")
    assert {other.partition(" until ")[0] for other in others} == {"answers; certificate"}
    expected = "failurePolicy Fail for 6 and Ignore for 3; timeoutSeconds 3"
    assert last == f"the webhook works: 9 webhooks; {expected}"

    # The log of the webhook names the check, and shows that its requests were dry runs.
    def decisions() -> list[dict[str, Any]]:
        return [one for one in installation.server.log() if one.get("name") == "gpuward-check"]

    decided = eventually(decisions, what="the decisions are in the log")
    assert {line["event"] for line in decided} >= {"denied"}
    assert all(line["dry_run"] and line["namespace"] == "gpuward-check" for line in decided)


def test_configurations_are_compared_with_what_the_release_should_have(
    installation: Installation, tmp_path: Path
) -> None:
    expected = tmp_path / "expected.yaml"
    with installation.registered():
        both = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
        done = installation.plane.kubectl("get", both, installation.name, "--output=yaml")
        expected.write_text(done.stdout)
        same = installation.check("--expected", str(expected))
        installation.edit(ConfigurationKind.VALIDATING, "remove", "/webhooks/0")
        installation.edit(
            ConfigurationKind.MUTATING, "replace", "/webhooks/0/failurePolicy", "Ignore"
        )
        changed = installation.check("--expected", str(expected))
    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout.count(f"/{installation.name}: is what this release should have\n") == 2
    assert "not compared" not in same.stdout
    assert changed.returncode == 1
    first, second, *hint = changed.stderr.splitlines()
    validating, mutating = (
        f"gpuward webhooks: {kind.value}/{installation.name}: " for kind in KINDS
    )
    assert first == f"{validating}deny.gpuward.io: it is missing"
    difference = 'pods.deny.gpuward.io: failurePolicy: expected "Fail", found "Ignore"'
    assert second == f"{mutating}{difference}"
    assert hint[0].startswith("Somebody has changed the configurations.")
    names = [f"{kind.value}/{installation.name}" for kind in KINDS]
    assert hint[-1] == f"  kubectl delete {' '.join(names)}"
    assert "the webhook works" not in changed.stdout


def test_an_expectation_that_cannot_be_read_is_reported(installation: Installation) -> None:
    done = installation.check("--expected", "/no-file")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gpuward webhooks: /no-file: no such file or directory\n"


def test_an_empty_ca_bundle_is_reported(installation: Installation) -> None:
    with installation.registered():
        installation.edit(
            ConfigurationKind.VALIDATING, "remove", "/webhooks/0/clientConfig/caBundle"
        )
        done = installation.check()
    assert done.returncode == 1
    message, *hint = done.stderr.splitlines()
    assert message.startswith(
        f"gpuward webhooks: {installation.url}/validate/deny: caBundle is empty"
    )
    logs = f"kubectl logs -n {installation.namespace} -l app.kubernetes.io/component=certs"
    assert f"  self            {logs}" in hint
    assert hint[-1].startswith("  existingSecret  put a new certificate into your Secret")
    assert done.stdout.count(": answers") == 5, "the other webhooks answer"
    assert "the webhook works" not in done.stdout


def test_a_certificate_of_another_authority_is_reported(installation: Installation) -> None:
    folder = installation.folder / "another"
    folder.mkdir(exist_ok=True)
    with installation.registered(installation.client_config(bundle=Authority(folder).bundle)):
        done = installation.check()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("the certificate is not trusted by caBundle: ") == 6
    assert done.stderr.count("app.kubernetes.io/component=certs") == 1, "the remedy is given once"


def test_a_certificate_for_another_name_is_reported(installation: Installation) -> None:
    with installation.registered(installation.client_config("another")):
        done = installation.check()
    assert (done.returncode, done.stdout) == (1, "")
    expected = f"the certificate is not for another.{installation.namespace}.svc\n"
    assert done.stderr.count(expected) == 6


def test_a_refused_connection_is_reported(installation: Installation) -> None:
    with installation.registered():
        done = installation.check(address=f"127.0.0.1:{free_port()}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count(": Connection refused\n") == 6
    expected = (
        f"  kubectl get pods -n {installation.namespace} -l app.kubernetes.io/component=webhook\n"
    )
    assert done.stderr.endswith(expected)


def test_the_policy_may_allow_the_sample(
    installation: Installation, processes: Processes, tmp_path: Path
) -> None:
    rule_off = 'rules: {visible-devices-env: {action: "off"}}\n'
    certificate = installation.folder / "certificate"
    arguments = ("--drain-seconds", "0")
    server = Server(
        processes, tmp_path, certificate, rule_off, name="gpuward-lax", arguments=arguments
    )
    with installation.registered():
        done = installation.check(address=server.address)
    server.stop()
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = (line for line in done.stdout.splitlines() if "/validate/deny: " in line)
    assert "note: the policy allows a pod that takes every GPU without requesting one" in line


def test_tls_only_checks_a_webhook_that_requires_client_certificates(
    installation: Installation, processes: Processes, tmp_path: Path
) -> None:
    arguments = ("--client-ca", str(installation.plane.authority.file), "--drain-seconds", "0")
    certificate = installation.folder / "certificate"
    server = Server(
        processes, tmp_path, certificate, name="gpuward-check-mtls", arguments=arguments
    )
    with installation.registered():
        full_check = installation.check(address=server.address)
        tls_check = installation.check("--tls-only", address=server.address)
    server.stop()
    assert (full_check.returncode, full_check.stdout) == (1, "")
    assert full_check.stderr.count(": the connection was closed without a response\n") == 6
    assert full_check.stderr.endswith("This command has none; add --tls-only.\n")
    assert (tls_check.returncode, tls_check.stderr) == (0, "")
    assert tls_check.stdout.count(": only its certificate was checked; certificate until 20") == 6


def test_missing_configurations_are_reported(installation: Installation) -> None:
    done = installation.check()
    assert (done.returncode, done.stdout) == (1, "")
    for kind in ConfigurationKind:
        assert (
            f"gpuward webhooks: {kind.value}/{installation.name}: it does not exist\n"
            in done.stderr
        )
    assert done.stderr.count("gpuward is not installed, has another name here, or ") == 1


def test_missing_rights_are_reported(installation: Installation) -> None:
    unprivileged = installation.plane.kubeconfig_for(
        installation.plane.token("default", installation.namespace)
    )
    with installation.registered():
        done = installation.check("--kubeconfig", str(unprivileged))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("cannot get resource") == 2


def test_webhooks_of_others_are_not_called(installation: Installation) -> None:
    with installation.registered():
        installation.edit(
            ConfigurationKind.MUTATING, "replace", "/webhooks/0/name", "pods.example.com"
        )
        done = installation.check()
    assert done.returncode == 1
    assert (
        "not gpuward's, so it is not called: it contains the webhook pods.example.com"
        in done.stderr
    )
    assert "/mutate/" not in done.stdout
    assert done.stdout.count(": answers") == 3


def test_wait_retries_until_the_webhook_answers(
    installation: Installation, processes: Processes
) -> None:
    processes.start("waiting-check", installation.command("--wait", "600"), ENVIRONMENT)
    log = processes.log("waiting-check")
    eventually(lambda: "not yet: " in log.read_text(), what="the first check")
    with installation.registered():
        eventually(
            lambda: processes.exit_status("waiting-check") is not None, what="the end of the check"
        )
    assert processes.exit_status("waiting-check") == 0
    lines = log.read_text().splitlines()
    assert lines[-2].startswith("the webhook works: 9 webhooks; ")
    missing = [line for line in lines if line.endswith(": it does not exist")]
    assert len(missing) == len(set(missing)) == 2, (
        "each failure is printed once, however many retries there were"
    )
