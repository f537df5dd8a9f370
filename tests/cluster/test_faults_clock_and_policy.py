"""A clock that jumps and a policy file that is broken, while pods are created."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from certs.pki.keypairs import KeyPair
from tests.testkit.admission.fault_installation import Installation, now, served
from tests.testkit.admission.fault_load import (
    CREATED,
    REFUSED_POD,
    Load,
    assert_nothing_lost,
    counts,
    is_refused,
)
from tests.testkit.admission.registered_webhook import Server, create
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import TESTS

SHIFTED_CLOCK = TESTS / "testkit" / "admission" / "shifted_clock.py"
NOTHING = datetime.timedelta()
DECADE = datetime.timedelta(days=3653)
RULE = "visible-devices-env"
EXCUSED = pod(container("excused", **variable("all")))
EXCEPTION = """
exceptions:
  - rules: [{rule}]
    match: {{container: excused, namespace: {namespace}}}
    reason: nothing lasts for ever
    expires: {expires}
"""
BROKEN: dict[str, Callable[[Path], object]] = {
    "half written": lambda file: file.write_text(file.read_text() + "rules:\n  request-only: {act"),
    "empty": lambda file: file.write_bytes(b""),
    "gone": lambda file: file.unlink(),
}


@pytest.fixture
def installation(plane: ControlPlane, tmp_path: Path) -> Iterator[Installation]:
    with Installation(plane, tmp_path) as installation:
        yield installation


def test_a_clock_that_jumps_stops_nothing(
    plane: ControlPlane, installation: Installation, tmp_path: Path
) -> None:
    clock = tmp_path / "shift"
    set_clock(clock, NOTHING)
    expires = (now() + datetime.timedelta(days=30)).date()
    policy = EXCEPTION.format(rule=RULE, namespace=installation.strict, expires=expires)
    server = installation.replica(policy, front=(str(SHIFTED_CLOCK), str(clock)))
    installation.enforced()

    def is_excused() -> bool:
        return create(plane, installation.strict, EXCUSED, dry_run=True).status == CREATED

    assert is_excused()
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        for jump, excused in ((DECADE, False), (-DECADE, True)):
            set_clock(clock, jump)
            # What is in date for all others is not taken; what was served before still is.
            renewed = installation.leaf()
            put_in_vain(installation, server, renewed)
            assert served(server) != renewed.certificate_pem
            installation.reconnect()
            load.go_on(100)
            assert is_excused() is excused
        set_clock(clock, NOTHING)
        eventually(lambda: served(server) == renewed.certificate_pem, what="it is taken now")
        installation.reconnect()
        load.go_on(100)
    assert is_excused()
    assert_nothing_lost(load, counts(plane).since(before))


def set_clock(file: Path, shift: datetime.timedelta) -> None:
    written = file.with_suffix(".new")
    written.write_text(str(shift.total_seconds()), encoding="utf-8")
    written.rename(file)


def put_in_vain(installation: Installation, server: Server, leaf: KeyPair) -> None:
    name = "gpuward_certificate_reload_failures_total"
    failures = server.metric(name)
    installation.secret.put(leaf)
    eventually(lambda: server.metric(name) > failures, what="it is refused")


def test_a_broken_policy_file_leaves_the_last_good_policy_in_force(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.enforced()
    good = server.policy_file.read_text(encoding="utf-8")
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        for number, (what, spoil) in enumerate(BROKEN.items(), start=1):
            spoil(server.policy_file)
            await_refusals(server, number, what)
            assert server.metric("gpuward_policy_valid") == 0
            load.go_on(100)
        server.policy_file.write_text(good, encoding="utf-8")
        eventually(lambda: server.metric("gpuward_policy_valid") == 1, what="it is restored")
        load.go_on(100)
    assert server.metric("gpuward_policy_loads_total") == 1
    assert_nothing_lost(load, counts(plane).since(before))
    refused = [line for line in server.log() if line["event"] == "policy refused"]
    assert len(refused) == len(BROKEN)
    assert all(line["error"] for line in refused)
    assert len({line["active"] for line in refused}) == 1

    server.policy_file.write_text(f"{good}rules:\n  {RULE}: {{action: warn}}\n", encoding="utf-8")
    eventually(lambda: admits(plane, installation), what="the whole policy is in force")


def await_refusals(server: Server, number: int, what: str) -> None:
    eventually(lambda: server.metric("gpuward_policy_reload_failures_total") == number, what=what)


def admits(plane: ControlPlane, installation: Installation) -> bool:
    answer = create(plane, installation.strict, REFUSED_POD, dry_run=True)
    assert answer.status == CREATED or is_refused(answer)
    return answer.status == CREATED
