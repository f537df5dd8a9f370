"""What is logged about the certificate."""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path
from typing import Any

import pytest

from certs.pki.authority import new_authority, sign_leaf
from certs.pki.keypairs import KeyPair, fingerprint
from certs.serving.certificate import ServingCertificate
from webhook.reload.certificate import CertificateReloader
from webhook.telemetry.log import Log

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NAMES = ("localhost",)


class World:
    """A folder with certificates, what is told about them, and the time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = START
        self._authority = new_authority(NAMES, START)
        certificate = ServingCertificate(str(folder), None, clock=lambda: self.now)
        self._stream = io.BytesIO()
        self._news = CertificateReloader(certificate, Log(self._stream))

    def write(self) -> str:
        """A new certificate for 30 days; how it is called in the log."""
        pair: KeyPair = sign_leaf(self._authority, NAMES, self.now, 30 * DAY)
        (self.folder / "tls.crt").write_bytes(pair.certificate_pem)
        (self.folder / "tls.key").write_bytes(pair.key_pem)
        return fingerprint(pair.certificate)[:16]

    def told(self, looks: int = 2) -> list[dict[str, Any]]:
        """What so many looks at it add to the log, without the time."""
        before = len(self._stream.getvalue())
        for _ in range(looks):
            self._news.log_changes(loaded=self._news.reload())
        lines = [json.loads(line) for line in self._stream.getvalue()[before:].splitlines()]
        return [{k: v for k, v in line.items() if k != "time"} for line in lines]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def line(level: str, event: str, name: str, until: datetime.datetime) -> dict[str, Any]:
    return {"level": level, "event": event, "fingerprint": name, "not_after": until.isoformat()}


def test_what_was_refused_and_then_repaired_is_restored(world: World) -> None:
    until = START + 30 * DAY
    name = world.write()
    assert world.told() == [line("info", "certificate loaded", name, until)]
    key = (world.folder / "tls.key").read_bytes()
    (world.folder / "tls.key").write_bytes(b"")
    why = "tls.key is empty"
    refused = {"level": "error", "event": "certificate refused", "error": why, "active": name}
    assert world.told() == [refused]
    (world.folder / "tls.key").write_bytes(key)
    assert world.told() == [line("info", "certificate restored", name, until)]


def test_the_first_one_is_loaded_and_not_restored(world: World) -> None:
    (refused,) = world.told()
    assert (refused["event"], "active" in refused) == ("certificate refused", False)
    world.write()
    assert [told["event"] for told in world.told()] == ["certificate loaded"]


def test_an_old_certificate_is_told_once_and_again_of_the_next(world: World) -> None:
    for _ in range(2):
        name, until = world.write(), world.now + 30 * DAY
        world.told()
        world.now += 22 * DAY
        assert world.told() == []
        world.now += 2 * DAY
        assert world.told() == [line("warning", "certificate expires soon", name, until)]
        world.now += 7 * DAY
        assert world.told() == [line("error", "certificate expired", name, until)]
