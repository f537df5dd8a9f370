"""Tests of the log lines about the serving certificate."""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path
from typing import Any

import pytest

from certs.authority import new_authority, sign_leaf
from certs.keypairs import KeyPair, fingerprint
from certs.serving import ServingCertificate
from webhook.reload.certificate import CertificateReloader
from webhook.telemetry.log import Log

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NAMES = ("localhost",)


class ReloadScenario:
    """A folder with a certificate, the reloader that logs about it, and the time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = START
        self._authority = new_authority(NAMES, START)
        certificate = ServingCertificate(str(folder), None, clock=lambda: self.now)
        self._stream = io.BytesIO()
        self._reloader = CertificateReloader(certificate, Log(self._stream))

    def write(self) -> str:
        """Write a new certificate for 30 days, and return its fingerprint as in the log."""
        pair: KeyPair = sign_leaf(self._authority, NAMES, self.now, 30 * DAY)
        (self.folder / "tls.crt").write_bytes(pair.certificate_pem)
        (self.folder / "tls.key").write_bytes(pair.key_pem)
        return fingerprint(pair.certificate)[:16]

    def new_lines(self, reloads: int = 2) -> list[dict[str, Any]]:
        """The log lines of so many reloads, without the time."""
        before = len(self._stream.getvalue())
        for _ in range(reloads):
            self._reloader.log_changes(loaded=self._reloader.reload())
        lines = [json.loads(line) for line in self._stream.getvalue()[before:].splitlines()]
        return [{k: v for k, v in line.items() if k != "time"} for line in lines]


@pytest.fixture
def scenario(tmp_path: Path) -> ReloadScenario:
    return ReloadScenario(tmp_path)


def line(level: str, event: str, name: str, until: datetime.datetime) -> dict[str, Any]:
    return {"level": level, "event": event, "fingerprint": name, "not_after": until.isoformat()}


def test_a_refused_certificate_is_restored_once_it_is_valid_again(scenario: ReloadScenario) -> None:
    until = START + 30 * DAY
    name = scenario.write()
    assert scenario.new_lines() == [line("info", "certificate loaded", name, until)]
    key = (scenario.folder / "tls.key").read_bytes()
    (scenario.folder / "tls.key").write_bytes(b"")
    why = "tls.key is empty"
    refused = {"level": "error", "event": "certificate refused", "error": why, "active": name}
    assert scenario.new_lines() == [refused]
    (scenario.folder / "tls.key").write_bytes(key)
    assert scenario.new_lines() == [line("info", "certificate restored", name, until)]


def test_the_first_certificate_is_loaded_and_not_restored(scenario: ReloadScenario) -> None:
    (refused,) = scenario.new_lines()
    assert (refused["event"], "active" in refused) == ("certificate refused", False)
    scenario.write()
    assert [entry["event"] for entry in scenario.new_lines()] == ["certificate loaded"]


def test_an_expiring_certificate_is_logged_once_each_time(scenario: ReloadScenario) -> None:
    for _ in range(2):
        name, until = scenario.write(), scenario.now + 30 * DAY
        scenario.new_lines()
        scenario.now += 22 * DAY
        assert scenario.new_lines() == []
        scenario.now += 2 * DAY
        assert scenario.new_lines() == [line("warning", "certificate expires soon", name, until)]
        scenario.now += 7 * DAY
        assert scenario.new_lines() == [line("error", "certificate expired", name, until)]
