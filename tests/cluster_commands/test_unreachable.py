"""What commands say of an API server that does not answer, without words of a library."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.api.connection import Connection
from cluster.api.errors import ClusterError
from tests.testkit.control_plane.processes import free_port
from tests.testkit.kubeconfig import write_kubeconfig


def error_of(folder: Path, server: str) -> str:
    connection = Connection.like_kubectl(write_kubeconfig(folder, server, {}))
    with pytest.raises(ClusterError) as caught:
        connection.request("GET", "/api/v1/nodes")
    text = str(caught.value)
    assert text.startswith(f"GET /api/v1/nodes: {server}: ")
    assert not re.search(r"Error\b|Exception\b|Errno|object at|host=", text), text
    return text.removeprefix(f"GET /api/v1/nodes: {server}: ")


def test_nothing_listens(tmp_path: Path) -> None:
    server = f"https://127.0.0.1:{free_port()}"
    assert error_of(tmp_path, server) == "no connection: connection refused"


def test_no_secret_of_the_address_is_shown(tmp_path: Path) -> None:
    server = f"127.0.0.1:{free_port()}"
    url = f"https://alice:s3cret@{server}/base?token=s3cret"
    connection = Connection.like_kubectl(write_kubeconfig(tmp_path, url, {}))
    with pytest.raises(ClusterError, match=f"https://{server}: no connection") as caught:
        connection.request("GET", "/api/v1/nodes")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("address", ["[::1", "a b:6443", "127.0.0.1:99999"])
def test_an_address_that_is_not_valid_is_an_error_without_its_secrets(
    tmp_path: Path, address: str
) -> None:
    url = f"https://alice:s3cret@{address}"
    connection = Connection.like_kubectl(write_kubeconfig(tmp_path, url, {}))
    with pytest.raises(ClusterError, match=r"server is not valid$") as caught:
        connection.request("GET", "/api/v1/nodes")
    assert "s3cret" not in str(caught.value)


def test_the_name_is_not_known(tmp_path: Path) -> None:
    text = error_of(tmp_path, "https://nowhere.invalid:6443")
    assert text.startswith("the name of the host cannot be resolved")


@pytest.fixture
def closing_port() -> Iterator[int]:
    """A server that closes each connection at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=close, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_connection_is_closed(tmp_path: Path, closing_port: int, scheme: str) -> None:
    text = error_of(tmp_path, f"{scheme}://127.0.0.1:{closing_port}")
    assert re.match("the connection was closed before the whole answer came|TLS: ", text), text
