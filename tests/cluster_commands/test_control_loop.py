"""The loop that every controller runs in: failures, leaders, liveness, the end."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from cluster import control_loop
from cluster.api.errors import ClusterError, ConflictError, Object
from cluster.control_loop import Controller, ControlLoop, LeaderElection, StoppedError, Watch

LOG = structlog.get_logger("test")


class Passes(Controller):
    """A controller whose passes do what `action` does; `now` is its clock."""

    def __init__(self, action: Callable[[Callable[[Any], None]], object], **options: Any) -> None:
        self.now = 0.0
        self.action = action
        options = {"stale_seconds": 60, "expected": (LookupError,), **options}
        super().__init__(LOG, "not done", monotonic=lambda: self.now, **options)

    def _reconcile(self, report: Callable[[Any], None]) -> None:
        self.action(report)


def fail(error: Exception) -> Callable[[object], None]:
    def action(_: object) -> None:
        raise error

    return action


@pytest.mark.parametrize("error", [ClusterError("403 forbidden"), LookupError("no file")])
def test_a_failure_is_counted_each_time_and_logged_when_it_begins(error: Exception) -> None:
    controller = Passes(fail(error))
    with capture_logs() as log:
        assert [controller.reconcile() for _ in range(3)] == [False, False, False]
        controller.action = lambda _: None
        assert controller.reconcile()
        controller.action = fail(error)
        controller.reconcile()
    assert [(line["event"], line["error"]) for line in log] == [("not done", str(error))] * 2
    assert (controller.passes, controller.failures) == (5, 4)
    assert controller.alive, "a restart would not help"


def test_what_a_pass_leaves_out_is_a_failure_that_does_not_end_it() -> None:
    done = []

    def leave_out(report: Callable[[Any], None]) -> None:
        report("no right to list nodes")
        done.append(True)

    controller = Passes(leave_out)
    with capture_logs() as log:
        assert not controller.reconcile()
    assert (done, [line["error"] for line in log]) == ([True], ["no right to list nodes"])
    assert controller.failures == 1


def test_a_pass_with_endless_problems_does_not_fill_the_log() -> None:
    def report_all(report: Callable[[Any], None]) -> None:
        for number in range(1000):
            report(f"problem {number}")

    controller = Passes(report_all)
    with capture_logs() as log:
        controller.reconcile()
    assert len(log) == 20


def test_a_bug_is_logged_with_its_traceback_and_the_next_pass_runs() -> None:
    controller = Passes(fail(ZeroDivisionError()))
    with capture_logs() as log:
        assert not controller.reconcile()
        controller.action = lambda _: None
        assert controller.reconcile()
    assert [(line["event"], line["exc_info"]) for line in log] == [("not done", True)]


def test_a_conflict_is_no_failure() -> None:
    controller = Passes(fail(ConflictError("409")))
    with capture_logs() as log:
        assert controller.reconcile()
    assert (controller.failures, log[0]["log_level"]) == (0, "info")


def test_a_pass_that_does_not_end_is_stuck() -> None:
    seen: list[bool] = []

    def take_long(_: object) -> None:
        for seconds in (60, 1):
            controller.now += seconds
            seen.append(controller.alive)

    controller = Passes(take_long)
    controller.reconcile()
    assert seen == [True, False]
    assert controller.alive
    controller.now += 61
    assert not controller.alive, "the loop has begun no pass"


def test_users_may_choose_a_long_time_between_two_passes() -> None:
    controller = Passes(lambda _: None, idle_seconds=100_000)
    controller.reconcile()
    controller.now += 86_400
    assert controller.alive


class Leases:
    """A Lease, as the API server keeps it."""

    def __init__(self) -> None:
        self.lease: Object = {"metadata": {"resourceVersion": "1"}}

    def get_lease(self, _name: str) -> Object:
        return {**self.lease, "spec": dict(self.lease.get("spec") or {})}

    def write_lease(self, lease: Object) -> Object:
        self.lease = lease
        return lease


def election(leases: Leases, identity: str) -> LeaderElection:
    def today() -> datetime.datetime:
        return datetime.datetime(2031, 1, 1, tzinfo=datetime.UTC)

    return LeaderElection(
        leases,
        "gpuward",
        identity,
        seconds=40,
        monotonic=lambda: 0.0,
        clock=today,
    )


def test_only_the_leader_acts_and_the_next_one_follows_when_it_stops() -> None:
    leases, acted = Leases(), []
    one = Passes(lambda _: acted.append("one"), leader=election(leases, "one"))
    two = Passes(lambda _: acted.append("two"), leader=election(leases, "two"))
    assert [one.reconcile(), two.reconcile()] == [True, True]
    assert (acted, one.is_leader, two.is_leader) == (["one"], True, False)
    one.stop()
    two.reconcile()
    assert (acted, two.is_leader) == (["one", "two"], True)


def test_the_loop_runs_all_controllers_until_it_is_stopped() -> None:
    leases, acted = Leases(), []
    stop = threading.Event()

    def act_and_stop(_: object) -> None:
        acted.append("two")
        if len(acted) == 4:
            stop.set()

    controllers = (
        Passes(lambda _: acted.append("one"), leader=election(leases, "one")),
        Passes(act_and_stop),
    )
    ControlLoop(controllers, seconds=0).run(stop)
    assert acted == ["one", "two", "one", "two"]
    assert leases.lease["spec"]["holderIdentity"] == "", "another process may act at once"


def test_a_pass_that_is_told_to_end_has_not_failed() -> None:
    controller = Passes(fail(StoppedError()))
    with capture_logs() as log:
        assert controller.reconcile()
    assert (log, controller.failures, controller.passes) == ([], 0, 0)


def test_a_loop_is_alive_if_all_its_controllers_are() -> None:
    controllers = [Passes(lambda _: None) for _ in range(2)]
    loop = ControlLoop(controllers, seconds=10)
    assert loop.alive
    controllers[1].now = 100
    assert not loop.alive


def test_a_change_begins_a_pass_before_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_loop, "_LEAST_SECONDS", 0.01)
    stop, changed, acted = threading.Event(), threading.Event(), list[str]()

    def changes() -> Iterator[None]:
        yield  # the watch has begun
        changed.wait()
        yield
        stop.wait()

    def act(_: object) -> None:
        acted.append("pass")
        if len(acted) == 2:
            changed.set()
        elif len(acted) == 3:
            stop.set()

    # Without the watch, this test would last a day.
    ControlLoop([Passes(act)], seconds=86_400, watches=[Watch("something", changes)]).run(stop)
    assert len(acted) == 3


def test_a_watch_that_fails_is_logged_once_and_begins_again() -> None:
    attempts = iter([ClusterError("403"), ClusterError("403"), None, ClusterError("403")])
    seen: list[str] = []

    class Stop(threading.Event):
        """Set once there are no more attempts; no thread waits."""

        def wait(self, timeout: float | None = None) -> bool:
            del timeout
            return self.is_set()

    stop = Stop()

    def changes() -> Iterator[None]:
        error = next(attempts, "end")
        if error == "end":
            stop.set()
        if isinstance(error, ClusterError):
            raise error
        yield

    with capture_logs() as log:
        Watch("x", changes).run(lambda: seen.append("change"), stop, structlog.get_logger())
    assert [(line["event"], line["what"], line["error"]) for line in log] == [
        ("changes not watched", "x", "403")
    ] * 2
    assert seen == ["change", "change"]
