"""The whole controller in a world of late API servers, late replicas, crashes and odd clocks."""

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

from certs.controller.controller import Controller
from certs.pki.keypairs import CertificateError, fingerprint, parse_certificates
from certs.pki.validation import validate_key_pair
from tests.testkit.certs.fake_cluster import (
    CONFIGURATIONS,
    PLAN,
    START,
    WORK,
    CrashError,
    MemoryCluster,
    Time,
    controller,
)

NAME = PLAN.names[-1]
SECOND, MINUTE, HOUR, DAY = (
    datetime.timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days")
)


verified: dict[tuple[x509.Certificate, bytes], datetime.datetime] = {}


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


def verify(leaf: x509.Certificate, bundle: bytes, now: datetime.datetime) -> None:
    """As an API server does it: raises if a call to the webhook would fail."""
    if (leaf, bundle) not in verified or now > verified[leaf, bundle]:
        really_verify(leaf, bundle, now)
        # The whole chain holds then, or else fails when it is asked for then.
        later = min(leaf.not_valid_after_utc, now + 10 * DAY)
        with suppress(VerificationError):
            really_verify(leaf, bundle, later)
            verified[leaf, bundle] = later


def really_verify(leaf: x509.Certificate, bundle: bytes, now: datetime.datetime) -> None:
    store = Store(list(parse_certificates(bundle)))
    verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(NAME))
    verifier.verify(leaf, [])


class History:
    """What was written when, so that somebody may see it late."""

    def __init__(self, first: Any) -> None:
        self.times = [START]
        self.values = [first]

    def note(self, time: datetime.datetime, value: Any) -> None:
        if value != self.values[-1]:
            self.times.append(time)
            self.values.append(value)

    def at(self, time: datetime.datetime) -> Any:
        return self.values[max(0, bisect.bisect_right(self.times, time) - 1)]


class World:
    """Two controllers, API servers and replicas, each as late as it is told."""

    def __init__(self, api_servers: list[float], replicas: list[float]) -> None:
        self.time = Time()
        self.cluster = MemoryCluster()
        self.api_servers = [late * SECOND for late in api_servers]
        self.replicas = [late * SECOND for late in replicas]
        self.recovers_until = START + PLAN.propagation
        self.in_use: list[x509.Certificate | None] = [None] * len(replicas)
        self.bundles = {c: History(b"") for c in CONFIGURATIONS}
        self.secrets = History({})
        self.running = {name: self.started(name) for name in ("one", "two")}

    def started(self, name: str) -> Controller:
        return controller(self.cluster, self.time, name, replicas=self.served)

    def served(self) -> dict[str, str | None]:
        return {str(i): fingerprint(leaf) if leaf else None for i, leaf in enumerate(self.in_use)}

    def pass_time(self, step: datetime.timedelta, working: str) -> None:
        """Time passes, then those controllers that are `working` look around."""
        self.time.passed += step
        self.look()
        for name in working.split():
            try:
                self.running[name].reconcile()
            except CrashError:
                self.running[name] = self.started(name)
            self.look()

    def look(self) -> None:
        """Everybody sees what there is to see by now, and nothing in use may fail."""
        now = self.time.real
        for configuration, history in self.bundles.items():
            history.note(now, self.cluster.published(configuration))
        self.secrets.note(now, self.cluster.data(WORK.serving_secret))
        for i, late in enumerate(self.replicas):
            self.load(i, self.secrets.at(now - late))
        working = [leaf for leaf in self.in_use if leaf and now <= leaf.not_valid_after_utc]
        if not working:  # so nothing is waited for, and late API servers must catch up
            self.recovers_until = now + PLAN.propagation
        if now > self.recovers_until:
            for leaf in working:
                for history in self.bundles.values():
                    for late in self.api_servers:
                        verify(leaf, history.at(now - late), now)

    def load(self, i: int, data: dict[str, bytes]) -> None:
        """As ServingCertificate does."""
        try:
            crt, key = data.get("tls.crt", b""), data.get("tls.key", b"")
            self.in_use[i] = validate_key_pair(crt, key, NAME, self.time.real)
        except CertificateError:
            pass

    def lose(self, what: str) -> None:
        """Somebody breaks one Secret."""
        stored = self.cluster.stored
        if what == "leaf" and not self.cluster.data(WORK.authority_secret).get("ca.crt"):
            return  # with both Secrets lost, calls fail until the new certificate is there
        if what == "leaf":
            self.cluster.put_data(WORK.serving_secret, tls_crt=None, tls_key=None, ca_crt=None)
        elif what == "key":
            self.cluster.put_data(WORK.authority_secret, ca_key=b"-----BEGIN nonsense")
        elif what == "authority" and stored.signer and not (stored.successor or stored.retired):
            # While two are needed the serving Secret cannot tell of both.
            served = set(self.served().values())
            if stored.leaf and served == {fingerprint(stored.leaf.certificate)}:
                self.cluster.put_data(
                    WORK.authority_secret, ca_crt=None, ca_key=None, next_crt=None, next_key=None
                )


class Step(NamedTuple):
    """One step of a story; `trouble` comes before the time passes."""

    passes: datetime.timedelta
    working: str = "one"
    trouble: tuple[Any, ...] = ()
    times: int = 1


PASSES = st.sampled_from(
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
TROUBLE = st.one_of(
    st.just(()),
    st.tuples(st.just("crash"), st.integers(1, 6), st.booleans()),
    st.tuples(
        st.just("ahead"),
        st.sampled_from([5 * MINUTE, HOUR, 50 * DAY, 100 * DAY, 250 * DAY, 400 * DAY]),
    ),
    st.tuples(st.just("lose"), st.sampled_from(["leaf", "key", "authority"])),
    st.tuples(st.just("restart"), st.integers(0, 2)),
    st.tuples(
        st.just("refuse"),
        st.sampled_from(["secrets", "leases", "mutatingwebhookconfigurations", None]),
    ),
)
STEPS = st.builds(
    Step,
    passes=PASSES,
    working=st.sampled_from(["one", "one", "two", "one two", ""]),
    trouble=TROUBLE,
    times=st.sampled_from([1, 1, 5, 25]),
)
MONTH = [Step(29 * DAY), Step(30 * SECOND, times=8)]  # no leaf expires meanwhile
ROTATION = [Step(30 * SECOND, times=25), *8 * MONTH, *MONTH, Step(30 * SECOND, times=30)]
DROPPED = [*ROTATION, *4 * MONTH]


@settings(max_examples=40)
@given(
    st.lists(st.floats(0, 590), min_size=1, max_size=3),
    st.lists(st.floats(0, 120), min_size=1, max_size=3),
    st.lists(STEPS, min_size=3, max_size=25),
)
@example([590.0, 0.0], [120.0, 0.0], DROPPED)
@example([590.0, 0.0], [0.0], [*MONTH, Step(SECOND, trouble=("lose", "key")), *ROTATION[:1]])
@example(
    [0.0], [120.0], [*ROTATION[:1], Step(SECOND, trouble=("lose", "authority")), *ROTATION[:1]]
)
@example(
    [1.0],
    [0.0],
    [
        Step(SECOND),
        Step(HOUR, "two", ("lose", "authority")),
        Step(SECOND, trouble=("lose", "leaf")),
    ],
)
@example(
    [590.0],
    [0.0],
    [*ROTATION[:-1], Step(30 * SECOND, trouble=("ahead", HOUR)), Step(30 * SECOND, times=20)],
)
def test_no_leaf_in_use_ever_fails(
    api_servers: list[float], replicas: list[float], story: list[Step]
) -> None:
    world = World(api_servers, replicas)
    for step in story:
        match step.trouble:
            case ("crash", int(writes), bool(after)):
                world.cluster.crash = (writes, after)
            case ("ahead", datetime.timedelta() as much):
                world.time.ahead += much
            case ("lose", str(what)):
                world.cluster.refuse = None
                world.lose(what)
            case ("restart", int(i)) if i < len(world.in_use):
                world.in_use[i] = None
                world.load(i, world.cluster.data(WORK.serving_secret))
            case ("refuse", what):
                world.cluster.refuse = what
        for _ in range(step.times):
            world.pass_time(step.passes, step.working)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("crash_at", range(1, 12))
def test_a_rotation_survives_a_crash_at_every_write(crash_at: int, after: bool) -> None:  # noqa: FBT001
    world = World([590.0, 1.0], [120.0, 1.0])
    world.cluster.crash = (crash_at, after)
    for step in DROPPED:
        for _ in range(step.times):
            # A crash forgets how long the bundle has been there, and the wait starts anew.
            world.pass_time(step.passes, "one")
    stored = world.cluster.stored
    assert stored.signer
    assert stored.leaf
    assert not stored.retired
    assert stored.signer.certificate.not_valid_before_utc > START
    assert set(world.served().values()) == {fingerprint(stored.leaf.certificate)}


def test_three_years() -> None:
    world = World([60.0, 590.0], [30.0, 120.0])
    authorities = set()
    for _ in range(3 * 365 // 2):
        for _ in range(2):
            world.pass_time(30 * SECOND, "one")
        world.pass_time(2 * DAY, "one")
        stored = world.cluster.stored
        assert stored.signer
        assert stored.leaf
        assert stored.leaf.certificate.not_valid_after_utc - world.time.real > 25 * DAY
        assert len(stored.trusted) <= 2
        authorities.add(fingerprint(stored.signer.certificate))
    assert 5 <= len(authorities) <= 6
