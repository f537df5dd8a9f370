"""The certificates of API servers that are accepted, with the settings of Python 3.13 and newer."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api.connection import Connection
from cluster.api.errors import ClusterError
from tests.testkit.control_plane.pki import Authority
from tests.testkit.https_server import Answer, https_server
from tests.testkit.kubeconfig import write_kubeconfig


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let urllib3 verify as it does on Python 3.13, whichever Python runs the test."""
    newer = types.SimpleNamespace(version_info=max(sys.version_info, (3, 13)))
    monkeypatch.setattr("urllib3.util.ssl_.sys", newer)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority without key identifiers, as EKS has them."""
    (tmp_path / "authority").mkdir()
    return Authority(tmp_path / "authority")


@pytest.fixture
def port(authority: Authority) -> Iterator[int]:
    """An API server with a certificate of this authority."""
    context = authority.issue("server", hosts=["127.0.0.1"]).server_context()
    with https_server(lambda _: Answer(b'{"kind": "Status"}'), context) as port:
        yield port


def connection(
    folder: Path, port: int, trust: dict[str, Any], *, host: str = "127.0.0.1"
) -> Connection:
    return Connection.like_kubectl(write_kubeconfig(folder, f"https://{host}:{port}", trust))


def test_an_authority_without_key_identifiers_is_trusted(
    tmp_path: Path, authority: Authority, port: int
) -> None:
    trust = {"certificate-authority": str(authority.file)}
    assert connection(tmp_path, port, trust).request("GET", "/")["kind"] == "Status"


def test_another_authority_and_another_name_are_refused(
    tmp_path: Path, authority: Authority, port: int
) -> None:
    (tmp_path / "other").mkdir()
    stranger = {"certificate-authority": str(Authority(tmp_path / "other").file)}
    with pytest.raises(ClusterError, match="the certificate is not accepted: "):
        connection(tmp_path, port, stranger).request("GET", "/")
    with pytest.raises(ClusterError, match="the certificate is not accepted: "):
        connection(tmp_path, port, {}).request("GET", "/")  # those of the machine
    named = {"certificate-authority": str(authority.file)}
    with pytest.raises(ClusterError, match="the certificate is not accepted: "):
        connection(tmp_path, port, named, host="localhost").request("GET", "/")


def test_a_kubeconfig_can_say_that_nothing_is_verified(tmp_path: Path, port: int) -> None:
    trust = {"insecure-skip-tls-verify": True}
    with pytest.warns(match="Unverified HTTPS request"):
        assert connection(tmp_path, port, trust).request("GET", "/")["kind"] == "Status"
