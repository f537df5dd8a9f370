"""Tests of the watch over the policy file: what it reports, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cluster.api.errors import ClusterError
from cluster.webhooks import watch
from cluster.webhooks.watch import PolicyWatch
from policies.loading import load_policy

GOOD = "apiVersion: gpuward.io/v1\nkind: Policy\n"
BAD = GOOD + "rules: {no-such-rule: {}}\n"


class Watched:
    """A watch over a file, with a clock that the test moves."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.now = 1000.0
        self.events: list[str] = []
        self.event_failure: Exception | None = None
        self.watch = PolicyWatch(str(file), self.send_event, lambda: self.now)

    def send_event(self, text: str) -> None:
        self.events.append(text)
        if self.event_failure:
            raise self.event_failure

    def wait(self, seconds: float) -> list[Any]:
        """Check every ten seconds for some time; returns the events of the log."""
        with capture_logs() as log:
            for _ in range(int(seconds / 10)):
                self.now += 10
                self.watch.reconcile()
        return [line["event"] for line in log]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """A watch over a good policy."""
    file = tmp_path / "gpuward.yaml"
    file.write_text(GOOD)
    return Watched(file)


def test_a_good_policy_is_not_reported(watched: Watched) -> None:
    assert watched.wait(7200) == []
    assert watched.events == []


def test_a_refused_policy_is_reported_once_and_again_every_half_hour(watched: Watched) -> None:
    watched.file.write_text(BAD)
    assert watched.wait(10) == []
    assert watched.wait(1000) == ["policy refused"]
    (text,) = watched.events
    place = f"{watched.file}:3:9"
    assert text.startswith(f"the webhook cannot use the policy: {place}: there is no rule")
    assert watched.wait(3600) == ["policy refused"] * 2
    watched.file.write_text(GOOD)
    assert watched.wait(3600) == ["policy restored"]
    assert len(watched.events) == 3


def test_what_was_not_reported_is_not_restored(watched: Watched) -> None:
    watched.file.write_text(BAD)
    assert watched.wait(10) == []
    watched.file.write_text(GOOD)
    assert watched.wait(60) == []


def test_each_new_mistake_is_reported(watched: Watched) -> None:
    watched.file.write_text(BAD)
    assert watched.wait(30) == ["policy refused"]
    watched.file.unlink()
    assert watched.wait(30) == ["policy refused"]
    assert "no such file" in watched.events[1]
    watched.file.write_text(BAD)
    assert watched.wait(30) == ["policy refused"]


def test_half_of_a_file_is_not_reported(watched: Watched) -> None:
    watched.file.write_text(BAD)
    assert watched.wait(10) == []
    watched.file.write_text(GOOD)
    assert "policy refused" not in watched.wait(100)
    assert watched.events == []


def test_a_policy_is_loaded_only_when_it_changes(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []

    def parse(content: bytes, name: str) -> Any:
        loaded.append(content)
        return load_policy(content, name)

    monkeypatch.setattr(watch, "load_policy", parse)
    watched.wait(600)
    watched.file.write_text(BAD)
    watched.wait(600)
    assert loaded == [GOOD.encode(), BAD.encode()]


def test_an_event_that_cannot_be_created_is_logged(watched: Watched) -> None:
    watched.event_failure = ClusterError("forbidden")
    watched.file.write_text(BAD)
    assert watched.wait(100) == ["policy refused", "event not created"]


def test_a_bug_is_logged_and_stops_nothing(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: str) -> bytes:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(watch, "read_policy_file", fail)
        assert watched.wait(10) == ["policy not checked"]
    watched.file.write_text(BAD)
    assert watched.wait(30) == ["policy refused"]
