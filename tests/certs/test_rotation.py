"""Tests of rotation with slow API servers, slow replicas, crashes and wrong clocks."""

from __future__ import annotations

import bisect
import datetime
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from certs.authority import new_authority, sign_leaf
from certs.keypairs import CertificateError, fingerprint, parse_certificates, validate_key_pair
from certs.rotation import Observation, SecretKind, next_change, renewal_time
from certs.secrets import CertificateState, decode, encode_authority, encode_serving
from cluster.controllers.certificates import CertificateController
from tests.testkit.certs.fake_cluster import (
    CONFIG,
    CONFIGURATIONS,
    POLICY,
    START,
    CrashError,
    FakeTime,
    MemoryCluster,
    controller,
)

NAME = POLICY.names[-1]
SECOND, MINUTE, HOUR, DAY = (
    datetime.timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days")
)


verified: dict[tuple[x509.Certificate, bytes], datetime.datetime] = {}


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


def verify(leaf: x509.Certificate, bundle: bytes, now: datetime.datetime) -> None:
    """Verify as an API server does; VerificationError if a request to the webhook would fail."""
    if (leaf, bundle) not in verified or now > verified[leaf, bundle]:
        verify_chain(leaf, bundle, now)
        # If the chain is valid later too, it is valid in between and need not be verified again.
        later = min(leaf.not_valid_after_utc, now + 10 * DAY)
        with suppress(VerificationError):
            verify_chain(leaf, bundle, later)
            verified[leaf, bundle] = later


def verify_chain(leaf: x509.Certificate, bundle: bytes, now: datetime.datetime) -> None:
    store = Store(list(parse_certificates(bundle)))
    verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(NAME))
    verifier.verify(leaf, [])


class History:
    """The values of an object with their times, for readers that see changes late."""

    def __init__(self, first: Any) -> None:
        self.times = [START]
        self.values = [first]

    def record(self, time: datetime.datetime, value: Any) -> None:
        if value != self.values[-1]:
            self.times.append(time)
            self.values.append(value)

    def at(self, time: datetime.datetime) -> Any:
        return self.values[max(0, bisect.bisect_right(self.times, time) - 1)]


class RotationScenario:
    """Two controllers, and API servers and replicas that each see changes with a delay."""

    def __init__(self, api_servers: list[float], replicas: list[float]) -> None:
        self.time = FakeTime()
        self.cluster = MemoryCluster()
        self.api_servers = [delay * SECOND for delay in api_servers]
        self.replicas = [delay * SECOND for delay in replicas]
        self.recovers_until = START + POLICY.propagation
        self.in_use: list[x509.Certificate | None] = [None] * len(replicas)
        self.bundles = {c: History(b"") for c in CONFIGURATIONS}
        self.secrets = History({})
        self.running = {name: self.start(name) for name in ("one", "two")}

    def start(self, name: str) -> CertificateController:
        return controller(self.cluster, self.time, name, replicas=self.served)

    def served(self) -> dict[str, x509.Certificate | None]:
        return {str(i): leaf for i, leaf in enumerate(self.in_use)}

    def pass_time(self, step: datetime.timedelta, working: str) -> None:
        """Let time pass, then let the `working` controllers reconcile."""
        self.time.passed += step
        self.observe()
        for name in working.split():
            try:
                self.running[name].reconcile()
            except CrashError:
                self.running[name] = self.start(name)
            self.observe()

    def observe(self) -> None:
        """Update what API servers and replicas see, and verify every certificate in use."""
        now = self.time.real
        for configuration, history in self.bundles.items():
            history.record(now, self.cluster.published(configuration))
        self.secrets.record(now, self.cluster.data(CONFIG.serving_secret))
        for i, delay in enumerate(self.replicas):
            self.load(i, self.secrets.at(now - delay))
        working = [leaf for leaf in self.in_use if leaf and now <= leaf.not_valid_after_utc]
        if not working:  # the controller does not wait then, and slow API servers need time
            self.recovers_until = now + POLICY.propagation
        if now > self.recovers_until:
            for leaf in working:
                for history in self.bundles.values():
                    for delay in self.api_servers:
                        verify(leaf, history.at(now - delay), now)

    def load(self, i: int, data: dict[str, bytes]) -> None:
        """Load a certificate as ServingCertificate does."""
        try:
            crt, key = data.get("tls.crt", b""), data.get("tls.key", b"")
            self.in_use[i] = validate_key_pair(crt, key, NAME, self.time.real)
        except CertificateError:
            pass

    def break_secret(self, target: str) -> None:
        """Damage, empty or delete a Secret, or both, at any time."""
        if target == "key":
            self.cluster.put_data(CONFIG.authority_secret, ca_key=b"-----BEGIN nonsense")
        if target in ("leaf", "both"):
            self.cluster.delete(CONFIG.serving_secret)
        if target == "authority":
            self.cluster.put_data(
                CONFIG.authority_secret, ca_crt=None, ca_key=None, next_crt=None, next_key=None
            )
        if target == "both":
            self.cluster.delete(CONFIG.authority_secret)


class Step(NamedTuple):
    """One step of a scenario; `event` happens before the time passes."""

    duration: datetime.timedelta
    working: str = "one"
    event: tuple[Any, ...] = ()
    times: int = 1


DURATIONS = st.sampled_from(
    [
        SECOND,
        30 * SECOND,
        2 * MINUTE,
        5 * MINUTE,
        HOUR,
        DAY,
        10 * DAY,
        29 * DAY,
        60 * DAY,
        200 * DAY,
    ]
)
EVENTS = st.one_of(
    st.just(()),
    st.tuples(st.just("crash"), st.integers(1, 6), st.booleans()),
    st.tuples(
        st.just("ahead"),
        st.sampled_from([5 * MINUTE, HOUR, 50 * DAY, 100 * DAY, 250 * DAY, 400 * DAY]),
    ),
    st.tuples(st.just("break"), st.sampled_from(["leaf", "key", "authority", "both"])),
    st.tuples(st.just("restart"), st.integers(0, 2)),
    st.tuples(
        st.just("refuse"),
        st.sampled_from(["secrets", "leases", "mutatingwebhookconfigurations", None]),
    ),
)
STEPS = st.builds(
    Step,
    duration=DURATIONS,
    working=st.sampled_from(["one", "one", "two", "one two", ""]),
    event=EVENTS,
    times=st.sampled_from([1, 1, 5, 25]),
)
WAIT_29_DAYS = [Step(29 * DAY), Step(30 * SECOND, times=8)]  # no leaf expires in this time
ROTATION = [
    Step(30 * SECOND, times=25),
    *8 * WAIT_29_DAYS,
    *WAIT_29_DAYS,
    Step(30 * SECOND, times=30),
]
ROTATION_AND_REMOVAL = [*ROTATION, *4 * WAIT_29_DAYS]


@settings(max_examples=40)
@given(
    st.lists(st.floats(0, 590), min_size=1, max_size=3),
    st.lists(st.floats(0, 120), min_size=1, max_size=3),
    st.lists(STEPS, min_size=3, max_size=25),
)
@example([590.0, 0.0], [120.0, 0.0], ROTATION_AND_REMOVAL)
@example([590.0, 0.0], [0.0], [*WAIT_29_DAYS, Step(SECOND, event=("break", "key")), *ROTATION[:1]])
@example([0.0], [120.0], [*ROTATION[:1], Step(SECOND, event=("break", "authority")), *ROTATION[:1]])
@example([590.0], [120.0], [*ROTATION[:1], Step(SECOND, event=("break", "both")), *ROTATION[:1]])
@example(
    [590.0],
    [120.0],
    # The other controller remembers nothing.
    [*ROTATION[:1], Step(HOUR, "two", ("break", "both")), Step(30 * SECOND, "two", times=30)],
)
@example(
    [1.0],
    [0.0],
    [
        Step(SECOND),
        Step(HOUR, "two", ("break", "authority")),
        Step(SECOND, event=("break", "leaf")),
    ],
)
@example(
    [590.0],
    [0.0],
    [*ROTATION[:-1], Step(30 * SECOND, event=("ahead", HOUR)), Step(30 * SECOND, times=20)],
)
@pytest.mark.slow
def test_no_leaf_in_use_ever_fails(
    api_servers: list[float], replicas: list[float], steps: list[Step]
) -> None:
    scenario = RotationScenario(api_servers, replicas)
    for step in steps:
        match step.event:
            case ("crash", int(writes), bool(after)):
                scenario.cluster.crash = (writes, after)
            case ("ahead", datetime.timedelta() as offset):
                scenario.time.ahead += offset
            case ("break", str(target)):
                scenario.cluster.refuse = None
                scenario.break_secret(target)
            case ("restart", int(i)) if i < len(scenario.in_use):
                scenario.in_use[i] = None
                scenario.load(i, scenario.cluster.data(CONFIG.serving_secret))
            case ("refuse", target):
                scenario.cluster.refuse = target
        for _ in range(step.times):
            scenario.pass_time(step.duration, step.working)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("crash_at", range(1, 12))
def test_a_rotation_survives_a_crash_at_every_write(crash_at: int, after: bool) -> None:  # noqa: FBT001
    scenario = RotationScenario([590.0, 1.0], [120.0, 1.0])
    scenario.cluster.crash = (crash_at, after)
    for step in ROTATION_AND_REMOVAL:
        for _ in range(step.times):
            # After a crash the controller does not know the age of the bundle and waits again.
            scenario.pass_time(step.duration, "one")
    stored = scenario.cluster.stored
    assert stored.signer
    assert stored.leaf
    assert not stored.retired
    assert stored.signer.certificate.not_valid_before_utc > START
    assert set(scenario.served().values()) == {stored.leaf.certificate}


@pytest.mark.slow
def test_certificates_stay_valid_for_three_years() -> None:
    scenario = RotationScenario([60.0, 590.0], [30.0, 120.0])
    authorities = set()
    for _ in range(3 * 365 // 2):
        for _ in range(2):
            scenario.pass_time(30 * SECOND, "one")
        scenario.pass_time(2 * DAY, "one")
        stored = scenario.cluster.stored
        assert stored.signer
        assert stored.leaf
        assert stored.leaf.certificate.not_valid_after_utc - scenario.time.real > 25 * DAY
        assert len(stored.trusted) <= 2
        authorities.add(fingerprint(stored.signer.certificate))
    assert 5 <= len(authorities) <= 6


IN_PLACE = Observation(published_for=HOUR, replicas={})
"""All API servers have the bundle."""


def test_an_authority_that_only_the_serving_secret_has_is_stored_before_that_is_written() -> None:
    """Otherwise replicas that still serve its certificate fail when the new one is written."""
    lost, restored = new_authority(POLICY.names, START), new_authority(POLICY.names, START)
    served = CertificateState(signer=lost, leaf=sign_leaf(lost, POLICY.names, START))
    backup = encode_authority(CertificateState(signer=restored))
    change = next_change(decode(backup, encode_serving(served)), IN_PLACE, START, POLICY)
    assert change
    assert change.secret is SecretKind.AUTHORITY
    assert change.state.retired == (lost.certificate,)
    assert decode(encode_authority(change.state), {}).is_persisted


def test_a_certificate_is_renewed_at_its_time() -> None:
    authority = new_authority(POLICY.names, START)
    leaf = sign_leaf(authority, POLICY.names, START)
    state, due = CertificateState(authority, leaf=leaf), renewal_time(leaf.certificate)
    assert next_change(state, IN_PLACE, due - SECOND, POLICY) is None
    change = next_change(state, IN_PLACE, due, POLICY)
    assert change
    assert (change.secret, change.state.leaf != leaf) == (SecretKind.SERVING, True)


def test_an_authority_that_is_replaced_is_trusted_beside_those_before_it() -> None:
    first, second, third = (new_authority(POLICY.names, START) for _ in range(3))
    leaf = sign_leaf(first, POLICY.names, START)
    until = leaf.certificate.not_valid_after_utc
    state = CertificateState(second, third, (first.certificate,), until, leaf)
    change = next_change(state, IN_PLACE, START, POLICY)
    assert change
    assert (change.state.signer, change.state.successor) == (third, None)
    assert change.state.retired == (first.certificate, second.certificate)
    assert change.state.retired_until == until
