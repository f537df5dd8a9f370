"""`gpuward webhooks check` on a real API server, with the rights of the chart's test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.api import ConfigurationKind
from registration.routes import MODES
from tests.testkit.admission.registered_webhook import Server, folder_of
from tests.testkit.chart.permissions import CHECKER, prepare_check, take_back_check
from tests.testkit.control_plane.pki import Authority
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually, free_port
from tests.testkit.registration.checked_installation import ENVIRONMENT, PORT, SERVICE, Installation

PATHS = [f"/{door}/{mode.word}" for door in ("validate", "mutate") for mode in MODES]


@pytest.fixture(scope="module")
def here(
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
    prepare_check(plane, namespace, f"gpuward-{namespace}")
    kubeconfig = plane.kubeconfig_for(plane.token(CHECKER, namespace))
    yield Installation(plane, namespace, server, kubeconfig, folder)
    server.stop()
    take_back_check(plane, f"gpuward-{namespace}")


def test_all_answer(here: Installation) -> None:
    with here.registered():
        done = here.check()
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [here.place + path for path in PATHS]
    refusing, *others = (line.partition(": ")[2] for line in lines)
    assert refusing.startswith("answers, and refuses the sample; certificate until 20")
    assert {other.partition(" until ")[0] for other in others} == {"answers; certificate"}
    told = "failurePolicy Fail for 6 and Ignore for 3; timeoutSeconds 3"
    assert last == f"the webhook works: 9 webhooks; {told}"
    # In the log of the webhook it is plain what this was, and that it was only for show.
    decided = [line for line in here.server.log() if line.get("name") == "gpuward-check"]
    assert {line["event"] for line in decided} >= {"denied"}
    assert all(line["dry_run"] and line["namespace"] == "gpuward-check" for line in decided)


def test_where_no_certificate_has_been_written_yet(here: Installation) -> None:
    with here.registered():
        here.edit(ConfigurationKind.VALIDATING, "remove", "/webhooks/0/clientConfig/caBundle")
        done = here.check()
    assert done.returncode == 1
    fault, *hint = done.stderr.splitlines()
    assert fault.startswith(f"gpuward webhooks: {here.place}/validate/deny: caBundle is empty")
    assert hint[-1] == f"  kubectl logs -n {here.namespace} -l app.kubernetes.io/component=certs"
    assert done.stdout.count(": answers") == 5, "the others do all the same"
    assert "the webhook works" not in done.stdout


def test_what_another_authority_signed(here: Installation) -> None:
    folder = here.folder / "another"
    folder.mkdir(exist_ok=True)
    with here.registered(here.client_config(bundle=Authority(folder).bundle)):
        done = here.check()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("the certificate is not trusted by caBundle: ") == 6
    assert done.stderr.count("app.kubernetes.io/component=certs") == 1, "one remedy is enough"


def test_a_certificate_for_another_name(here: Installation) -> None:
    with here.registered(here.client_config("another")):
        done = here.check()
    assert (done.returncode, done.stdout) == (1, "")
    told = f"the certificate is not for another.{here.namespace}.svc\n"
    assert done.stderr.count(told) == 6


def test_nobody_listens(here: Installation) -> None:
    with here.registered():
        done = here.check(address=f"127.0.0.1:{free_port()}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count(": Connection refused\n") == 6
    told = f"  kubectl get pods -n {here.namespace} -l app.kubernetes.io/component=webhook\n"
    assert done.stderr.endswith(told)


def test_the_policy_may_let_the_sample_pass(
    here: Installation, processes: Processes, tmp_path: Path
) -> None:
    rule_off = 'rules: {visible-devices-env: {action: "off"}}\n'
    certificate = here.folder / "certificate"
    arguments = ("--drain-seconds", "0")
    server = Server(
        processes, tmp_path, certificate, rule_off, name="gpuward-lax", arguments=arguments
    )
    with here.registered():
        done = here.check(address=server.address)
    server.stop()
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = (line for line in done.stdout.splitlines() if "/validate/deny: " in line)
    assert "note: the policy allows a pod that takes every GPU without requesting one" in line


def test_callers_who_must_show_a_certificate(
    here: Installation, processes: Processes, tmp_path: Path
) -> None:
    arguments = ("--client-ca", str(here.plane.authority.file), "--drain-seconds", "0")
    certificate = here.folder / "certificate"
    server = Server(
        processes, tmp_path, certificate, name="gpuward-check-mtls", arguments=arguments
    )
    with here.registered():
        asking = here.check(address=server.address)
        looking = here.check("--tls-only", address=server.address)
    server.stop()
    assert (asking.returncode, asking.stdout) == (1, "")
    assert asking.stderr.count(": the connection was closed without an answer\n") == 6
    assert asking.stderr.endswith("This has none; add --tls-only.\n")
    assert (looking.returncode, looking.stderr) == (0, "")
    assert looking.stdout.count(": only its certificate was checked; certificate until 20") == 6


def test_nothing_is_installed(here: Installation) -> None:
    done = here.check()
    assert (done.returncode, done.stdout) == (1, "")
    for kind in ConfigurationKind:
        assert f"gpuward webhooks: {kind.value}/{here.name}: it does not exist\n" in done.stderr
    assert done.stderr.count("gpuward is not installed, or ") == 1


def test_who_may_not_look_is_told_so(here: Installation) -> None:
    stranger = here.plane.kubeconfig_for(here.plane.token("default", here.namespace))
    with here.registered():
        done = here.check("--kubeconfig", str(stranger))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("cannot get resource") == 2


def test_the_webhooks_of_others_are_not_called(here: Installation) -> None:
    with here.registered():
        here.edit(ConfigurationKind.MUTATING, "replace", "/webhooks/0/name", "pods.example.com")
        done = here.check()
    assert done.returncode == 1
    assert (
        "not gpuward's, so it is not called: it contains the webhook pods.example.com"
        in done.stderr
    )
    assert "/mutate/" not in done.stdout
    assert done.stdout.count(": answers") == 3


def test_it_waits_for_what_takes_a_moment(here: Installation, processes: Processes) -> None:
    processes.start("waiting-check", here.command("--wait", "600"), ENVIRONMENT)
    log = processes.log("waiting-check")
    eventually(lambda: "not yet: " in log.read_text(), what="it has looked once")
    with here.registered():
        eventually(
            lambda: processes.exit_status("waiting-check") is not None, what="it has seen enough"
        )
    assert processes.exit_status("waiting-check") == 0
    lines = log.read_text().splitlines()
    assert lines[-1].startswith("the webhook works: 9 webhooks; ")
    missing = [line for line in lines if line.endswith(": it does not exist")]
    assert len(missing) == len(set(missing)) == 2, "each is said once, however often it was tried"
