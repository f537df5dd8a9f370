"""Tests of the watch over the webhook configurations: what it reports, and when."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from cluster.api.errors import (
    ClusterError,
    ConfigurationKind,
    ConfigurationRef,
    ConflictError,
    Object,
)
from cluster.webhooks.comparison import ExpectationError
from cluster.webhooks.watch import RegistrationWatch, Repair

MUTATING, VALIDATING = (ConfigurationRef(kind, "gpuward") for kind in ConfigurationKind)
SERVICE = {"name": "gpuward", "namespace": "gpuward-system"}
SETTLE = 180.0


def configuration(**fields: Any) -> dict[str, Any]:
    client = {"service": SERVICE, "caBundle": "LS0t"}
    webhook = {"name": "deny.gpuward.io", "clientConfig": client, "failurePolicy": "Fail"}
    return {"webhooks": [{**webhook, **fields}]}


class Watched:
    """A watch over configurations in memory, with a clock that the test moves."""

    def __init__(self, *, repair: bool = False) -> None:
        self.repairs: list[str] = []
        self.pauses = 0
        self.created_meanwhile: dict[ConfigurationRef, Object] = {}
        self.refusal: ClusterError | None = None
        self.services = {("gpuward-system", "gpuward")}
        self.expected: Any = {MUTATING: configuration(), VALIDATING: configuration()}
        self.found: dict[ConfigurationRef, Object] = copy.deepcopy(self.expected)
        self.now = 1000.0
        self.failure: Exception | None = None
        self.events: list[str] = []
        self.event_failure: Exception | None = None
        self.watch = RegistrationWatch(
            lambda: self.expected,
            self.get,
            self.send_event,
            settle_seconds=SETTLE,
            repair=Repair(self.create, self.repairs.append, self.service_exists, self.pause)
            if repair
            else None,
            monotonic=lambda: self.now,
        )

    def pause(self, seconds: float) -> None:
        assert seconds == 1
        self.pauses += 1
        self.found.update(self.created_meanwhile)

    def service_exists(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self.services

    def create(self, ref: ConfigurationRef, manifest: Object) -> None:
        if self.refusal:
            raise self.refusal
        self.found[ref] = copy.deepcopy(manifest)

    def get(self, ref: ConfigurationRef) -> Object | None:
        if self.failure:
            raise self.failure
        return self.found.get(ref)

    def send_event(self, text: str) -> None:
        if self.event_failure:
            raise self.event_failure
        self.events.append(text)

    def wait(self, seconds: float) -> list[Any]:
        """Compare every ten seconds for some time; returns the log of it."""
        with capture_logs() as log:
            for _ in range(int(seconds / 10)):
                self.now += 10
                self.watch.reconcile()
        return log

    @property
    def samples(self) -> dict[str, float]:
        """The metric's samples by the label `kind`."""
        families = text_string_to_metric_families(self.watch.metrics().decode())
        found = [
            sample
            for family in families
            for sample in family.samples
            if not sample.name.startswith("gpuward_registration_repairs")
        ]
        assert {sample.name for sample in found} <= {"gpuward_registration_as_expected"}
        assert {sample.labels["name"] for sample in found} <= {"gpuward"}
        return {sample.labels["kind"]: sample.value for sample in found}


@pytest.fixture
def watched() -> Watched:
    return Watched()


def both(mutating: int, validating: int) -> dict[str, float]:
    return {MUTATING.kind.value: mutating, VALIDATING.kind.value: validating}


def test_nothing_is_reported_while_all_is_as_expected(watched: Watched) -> None:
    assert watched.samples == {}, "nothing is known before the first comparison"
    assert watched.wait(3600) == []
    assert watched.events == []
    assert watched.samples == both(1, 1)


def test_a_change_sets_the_metric_at_once_and_is_reported_when_it_persists(
    watched: Watched,
) -> None:
    watched.wait(10)
    watched.found[VALIDATING]["webhooks"][0]["failurePolicy"] = "Ignore"
    assert watched.wait(SETTLE) == []
    assert watched.samples == both(1, 0)
    (line,) = watched.wait(20)
    difference = 'deny.gpuward.io: failurePolicy: expected "Fail", found "Ignore"'
    assert line == {
        "log_level": "error",
        "event": "registration changed",
        "kind": "validatingwebhookconfigurations",
        "configuration": "gpuward",
        "differences": [difference],
    }
    assert watched.events == [f"validatingwebhookconfigurations/gpuward: {difference}"]


def test_missing_configurations_are_reported_soon(watched: Watched) -> None:
    watched.wait(10)
    watched.found.clear()
    # Not by the pass that finds it: a tool may be about to create it again.
    assert watched.wait(10) == []
    lines = watched.wait(10)
    assert [line["differences"] for line in lines] == [["it does not exist"]] * 2
    assert len(watched.events) == 2
    assert watched.samples == both(0, 0)


def test_an_upgrade_is_not_reported(watched: Watched) -> None:
    """The kubelet updates the expectation later than Helm writes the configurations."""
    watched.found = {MUTATING: configuration(), VALIDATING: configuration(timeoutSeconds=5)}
    log = watched.wait(90)
    watched.expected = copy.deepcopy(watched.found)
    assert log + watched.wait(3600) == []
    assert watched.samples == both(1, 1)


def test_a_change_is_reported_again_every_half_hour_until_it_is_undone(watched: Watched) -> None:
    del watched.found[MUTATING]
    assert len(watched.wait(4000)) == len(watched.events) == 3
    watched.found[MUTATING] = configuration()
    (line,) = watched.wait(3600)
    assert (line["log_level"], line["event"]) == ("info", "registration as expected again")
    watched.found[MUTATING] = configuration(failurePolicy="Ignore")
    assert watched.wait(SETTLE) == [], "a new change must persist, too"
    assert len(watched.wait(20)) == 1


def test_what_is_no_longer_expected_is_forgotten(watched: Watched) -> None:
    manifest = watched.expected[MUTATING]
    watched.found[MUTATING] = configuration(failurePolicy="Ignore")
    assert len(watched.wait(SETTLE + 60)) == 1
    del watched.expected[MUTATING]
    assert watched.wait(60) == []
    watched.expected[MUTATING] = manifest
    assert watched.wait(SETTLE - 60) == []  # it is new, so it has the time to settle again


def test_another_change_is_reported_at_once(watched: Watched) -> None:
    watched.found[MUTATING] = configuration(failurePolicy="Ignore")
    watched.wait(SETTLE + 10)
    del watched.found[MUTATING]
    (line,) = watched.wait(10)
    assert line["differences"] == ["it does not exist"]


@pytest.mark.parametrize(
    "failure", [ClusterError("403 forbidden"), ExpectationError("no file"), KeyError("a bug")]
)
def test_what_cannot_be_compared_has_no_sample_and_is_logged(
    watched: Watched, failure: Exception
) -> None:
    watched.wait(10)
    watched.failure = failure
    (line,) = watched.wait(10)
    assert (line["log_level"], line["event"]) == ("error", "registration not compared")
    assert watched.samples == {}
    assert watched.watch.alive, "a restart would not help"
    watched.failure = None
    watched.wait(10)
    assert watched.samples == both(1, 1)


def test_an_old_result_is_no_sample(watched: Watched) -> None:
    watched.wait(10)
    watched.now += 61
    assert not watched.watch.alive
    assert watched.samples == {}


def test_a_long_interval_makes_no_result_old() -> None:
    clock = [0.0]
    watch = RegistrationWatch(
        dict,
        lambda _: None,
        lambda _: None,
        settle_seconds=SETTLE,
        interval_seconds=300,
        monotonic=lambda: clock[0],
    )
    watch.reconcile()
    clock[0] = 301
    assert watch.alive


def test_an_event_that_cannot_be_created_is_logged(watched: Watched) -> None:
    watched.event_failure = ClusterError("403 forbidden")
    del watched.found[MUTATING]
    change, event = watched.wait(SETTLE + 10)
    assert change["event"] == "registration changed"
    assert (event["log_level"], event["event"]) == ("warning", "event not created")


@pytest.fixture
def repairing() -> Watched:
    watched = Watched(repair=True)
    watched.wait(10)
    return watched


def test_without_repair_nothing_is_created(watched: Watched) -> None:
    watched.found.clear()
    watched.wait(3600)
    assert watched.found == {}
    assert watched.pauses == 0
    assert b"gpuward_registration_repairs" not in watched.watch.metrics()


def test_a_deleted_configuration_is_created_again_and_this_is_reported(repairing: Watched) -> None:
    del repairing.found[VALIDATING]
    assert repairing.pauses == 0
    with capture_logs() as log:
        repairing.watch.reconcile()
    assert repairing.pauses == 1, "who has also forbidden the repair must be obeyed"
    assert repairing.found[VALIDATING] == repairing.expected[VALIDATING]
    assert [line["event"] for line in log] == ["registration repaired"]
    about = "validatingwebhookconfigurations/gpuward"
    assert repairing.repairs == [f"{about}: somebody has deleted it, and gpuward created it again"]
    assert repairing.events == []
    assert repairing.samples == both(1, 1)
    metrics = repairing.watch.metrics().decode()
    name = "gpuward_registration_repairs_total"
    for kind, count in (("validating", 1.0), ("mutating", 0.0)):
        labels = f'{{kind="{kind}webhookconfigurations",name="gpuward"}}'
        assert f"{name}{labels} {count}" in metrics


def test_without_its_service_no_configuration_is_created(repairing: Watched) -> None:
    """Then gpuward is being uninstalled."""
    repairing.services.clear()
    repairing.found.clear()
    log = repairing.wait(10)
    assert repairing.found == {}
    assert [line["event"] for line in log] == ["registration not repaired"]
    assert log[0]["error"] == "service/gpuward in gpuward-system does not exist either"


def test_what_somebody_else_creates_meanwhile_is_left_alone(repairing: Watched) -> None:
    other = configuration(failurePolicy="Ignore")
    del repairing.found[VALIDATING]
    repairing.created_meanwhile = {VALIDATING: other}
    repairing.watch.reconcile()
    assert repairing.found[VALIDATING] is other
    # Or between the last look and the request.
    del repairing.found[VALIDATING]
    repairing.created_meanwhile = {}
    repairing.refusal = ConflictError("409")
    with capture_logs() as log:
        repairing.watch.reconcile()
    assert (repairing.repairs, log) == ([], [])


def test_a_changed_configuration_is_not_repaired(repairing: Watched) -> None:
    changed = configuration(failurePolicy="Ignore")
    repairing.found[VALIDATING] = changed
    repairing.wait(3600)
    assert repairing.found[VALIDATING] is changed
    assert repairing.repairs == []


def test_a_repair_that_is_refused_is_logged_once_and_reported_like_any_change(
    repairing: Watched,
) -> None:
    repairing.refusal = ClusterError("403 forbidden")
    del repairing.found[VALIDATING]
    log = repairing.wait(60)
    assert [line["event"] for line in log] == ["registration not repaired", "registration changed"]
    assert repairing.events == ["validatingwebhookconfigurations/gpuward: it does not exist"]
    repairing.refusal = None
    repairing.wait(10)
    assert repairing.samples == both(1, 1)
