"""A clock that jumps and a broken policy file, while pods are created."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

from certs.keypairs import KeyPair
from tests.testkit.admission.fault_installation import Installation, now, served
from tests.testkit.admission.fault_load import (
    CREATED,
    REFUSED_POD,
    Load,
    assert_nothing_lost,
    counts,
    is_refused,
)
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import TESTS

SHIFTED_CLOCK = TESTS / "testkit" / "admission" / "shifted_clock.py"
NO_SHIFT = datetime.timedelta()
DECADE = datetime.timedelta(days=3653)
RULE = "visible-devices-env"
EXCEPTED_POD = pod(container("excepted", **variable("all")))
EXCEPTION = """
exceptions:
  - rules: [{rule}]
    match: {{container: excepted, namespace: {namespace}}}
    reason: an example
    expires: {expires}
"""


def write(file: Path, text: str) -> None:
    """Replace a file: while it is written, a server would read it half written, or empty."""
    written = file.with_suffix(".new")
    written.write_text(text, encoding="utf-8")
    written.rename(file)


BREAKAGES: dict[str, Callable[[Path], object]] = {
    "half written": lambda file: write(file, file.read_text() + "rules:\n  request-only: {act"),
    "empty": lambda file: file.write_bytes(b""),
    "gone": lambda file: file.unlink(),
}


def test_a_clock_that_jumps_stops_nothing(
    plane: ControlPlane, installation: Installation, tmp_path: Path
) -> None:
    clock = tmp_path / "shift"
    set_clock(clock, NO_SHIFT)
    expires = (now() + datetime.timedelta(days=30)).date()
    policy = EXCEPTION.format(rule=RULE, namespace=installation.strict, expires=expires)
    server = installation.replica(policy, program=(str(SHIFTED_CLOCK), str(clock)))
    installation.wait_until_enforced()

    def is_excepted() -> bool:
        return create(plane, installation.strict, EXCEPTED_POD, dry_run=True).status == CREATED

    assert is_excepted()
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        for jump, excepted in ((DECADE, False), (-DECADE, True)):
            set_clock(clock, jump)
            # By its clock the new certificate is not valid: the server keeps the old one.
            renewed = installation.leaf()
            put_refused_certificate(installation, server, renewed)
            assert served(server) != renewed.certificate_pem
            installation.reconnect()
            load.wait_for_answers(100)
            assert is_excepted() is excepted
        set_clock(clock, NO_SHIFT)
        eventually(
            lambda: served(server) == renewed.certificate_pem, what="the certificate is loaded"
        )
        installation.reconnect()
        load.wait_for_answers(100)
    assert is_excepted()
    assert_nothing_lost(load, counts(plane).since(before))


def set_clock(file: Path, shift: datetime.timedelta) -> None:
    write(file, str(shift.total_seconds()))


def put_refused_certificate(installation: Installation, server: Server, leaf: KeyPair) -> None:
    name = "gpuward_certificate_reload_failures_total"
    failures = server.metric(name)
    installation.secret.put(leaf)
    eventually(lambda: server.metric(name) > failures, what="the certificate is refused")


def test_with_a_broken_policy_file_the_last_valid_policy_stays_active(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.wait_until_enforced()
    good = server.policy_file.read_text(encoding="utf-8")
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        for number, (name, break_file) in enumerate(BREAKAGES.items(), start=1):
            break_file(server.policy_file)
            wait_for_reload_failures(server, number, name)
            assert server.metric("gpuward_policy_valid") == 0
            load.wait_for_answers(100)
        write(server.policy_file, good)
        eventually(lambda: server.metric("gpuward_policy_valid") == 1, what="it is restored")
        load.wait_for_answers(100)
    assert server.metric("gpuward_policy_loads_total") == 1
    assert_nothing_lost(load, counts(plane).since(before))
    refused = [line for line in server.log() if line["event"] == "policy refused"]
    assert len(refused) == len(BREAKAGES)
    assert all(line["error"] for line in refused)
    assert len({line["active"] for line in refused}) == 1

    write(server.policy_file, f"{good}rules:\n  {RULE}: {{action: warn}}\n")
    eventually(lambda: admits(plane, installation), what="the new policy is active")


def wait_for_reload_failures(server: Server, number: int, name: str) -> None:
    eventually(lambda: server.metric("gpuward_policy_reload_failures_total") == number, what=name)


def admits(plane: ControlPlane, installation: Installation) -> bool:
    answer = create(plane, installation.strict, REFUSED_POD, dry_run=True)
    assert answer.status == CREATED or is_refused(answer)
    return answer.status == CREATED
