"""By which proxy API servers are reached: as by kubectl."""

from __future__ import annotations

import importlib.machinery
import json
import socket
import sys
import types
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api.connection import Connection
from cluster.api.errors import ClusterError, UnreachableError
from cluster.api.proxies import proxy_for
from tests.testkit.connect_proxy import connect_proxy
from tests.testkit.control_plane.pki import Authority
from tests.testkit.https_server import Answer, https_server
from tests.testkit.kubeconfig import write_kubeconfig
from tests.testkit.paths import DATA

SERVER = "https://api.example.test:6443"
TABLE = (DATA / "proxies.tsv").read_text(encoding="utf-8").splitlines()
# Nothing listens on this port of this machine: only privileged programs may.
DEAD = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the machine's own proxies."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def answer(case: dict[str, Any]) -> object:
    """Return the answer of `proxy_for`, as the table has it."""
    try:
        proxy = proxy_for(case["server"], case["environment"])
    except ClusterError:
        return "refused"
    if proxy is None:
        return None
    password = None if proxy.user is None else proxy.password
    return [proxy.scheme, proxy.address, proxy.user, password]


@pytest.mark.parametrize("line", TABLE, ids=range(1, len(TABLE) + 1))
def test_agrees_with_httpproxy(line: str) -> None:
    case, expected = map(json.loads, line.split("\t"))
    assert answer(case) == expected


def test_the_kubeconfig_files_proxy_counts_before_the_environment_and_for_every_address() -> None:
    environment = {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}
    for server in (SERVER, "https://127.0.0.1:6443"):
        proxy = proxy_for(server, environment, "https://proxy:3128")
        assert proxy is not None
        assert proxy.url == "https://proxy:3128"
    assert proxy_for(SERVER, {}, "") is None


@pytest.mark.parametrize(
    "text",
    [
        "http://user:secret@proxy:port",
        "http://user:secret@proxy:65536",
        "http://user:sec ret@proxy",
        "http://user:secret%zz@proxy",
        "http://user:sec/ret@proxy",
        "http://user:sec#ret@proxy",
        "http://user:secret@",
        "http://user:secret@[fd00::1",
        " http://user:secret@proxy",
        "ftp://user:secret@proxy",
    ],
)
def test_a_proxy_that_cannot_be_used_is_an_error_without_its_credentials(text: str) -> None:
    for variable in ("HTTPS_PROXY", "https_proxy"):
        with pytest.raises(ClusterError, match=f"^{variable}: ") as raised:
            proxy_for(SERVER, {variable: text})
        assert "sec" not in str(raised.value)
    assert proxy_for("https://localhost", {"HTTPS_PROXY": text}) is None
    with pytest.raises(ClusterError, match=r"^proxy-url in the kubeconfig file: ") as raised:
        proxy_for(SERVER, {}, text)
    assert "sec" not in str(raised.value)


def test_another_type_in_a_kubeconfig_file_is_an_error() -> None:
    with pytest.raises(ClusterError, match="is no URL of a proxy"):
        proxy_for(SERVER, {}, 3128)


def test_no_text_about_a_proxy_has_its_credentials() -> None:
    proxy = proxy_for(SERVER, {"HTTPS_PROXY": "http://somebody:secret@proxy"})
    assert str(proxy) == "the proxy http://proxy of HTTPS_PROXY"
    assert "secret" not in repr(proxy)
    assert "somebody" not in repr(proxy)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def port(authority: Authority) -> Iterator[int]:
    """An API server of this machine, which also has a name that DNS does not know."""
    hosts = ["127.0.0.1", "api.example.test"]
    context = authority.issue("server", hosts=hosts).server_context()
    with https_server(lambda _: Answer(b'{"kind": "Status"}'), context) as port:
        yield port


def connect(authority: Authority, server: str, **cluster: str) -> Connection:
    trust = {"certificate-authority": str(authority.file)}
    return Connection.like_kubectl(write_kubeconfig(authority.folder, server, trust | cluster))


def test_an_api_server_of_this_machine_is_reached_directly(
    authority: Authority, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(variable, DEAD)
    connection = connect(authority, f"https://127.0.0.1:{port}")
    assert connection.request("GET", "/")["kind"] == "Status"


def test_a_pod_reaches_its_api_server_by_the_same_rules(
    authority: Authority, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = authority.folder / "token"
    token.write_text("t", encoding="utf-8")
    files = "kubernetes.config.incluster_config.SERVICE"
    monkeypatch.setattr(f"{files}_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(f"{files}_CERT_FILENAME", str(authority.file))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
    monkeypatch.setenv("HTTPS_PROXY", DEAD)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    assert Connection.in_cluster().request("GET", "/")["kind"] == "Status"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    with pytest.raises(UnreachableError, match=f"through the proxy {DEAD} of HTTPS_PROXY: "):
        Connection.in_cluster().request("GET", "/")


@pytest.mark.parametrize(
    ("credentials", "sent"),
    [("", None), ("user:s%C3%A9cret%40@", "user:sécret@"), ("user@", "user:")],
)
def test_a_proxy_resolves_the_name_of_the_api_server(
    credentials: str, sent: str | None, authority: Authority, port: int, monkeypatch: Any
) -> None:
    expected = sent and f"Basic {b64encode(sent.encode()).decode()}"
    with connect_proxy(port, authorization=expected) as proxy:
        address = f"http://{credentials}127.0.0.1:{proxy.port}"
        from_file = connect(authority, SERVER, **{"proxy-url": address})
        assert from_file.request("GET", "/")["kind"] == "Status"
        monkeypatch.setenv("HTTPS_PROXY", address)
        assert connect(authority, SERVER).request("GET", "/")["kind"] == "Status"
        assert proxy.targets == ["api.example.test:6443"] * 2


def test_the_error_for_a_proxy_that_refuses_says_why(
    authority: Authority, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_proxy(port, authorization="Basic other") as proxy:
        address = f"127.0.0.1:{proxy.port}"
        monkeypatch.setenv("https_proxy", f"http://user:secret@{address}")
        text = rf"through the proxy http://{address} of https_proxy: .*407 Proxy Authentication"
        with pytest.raises(UnreachableError, match=text) as raised:
            connect(authority, SERVER).request("GET", "/")
        assert "secret" not in str(raised.value)


def test_the_certificate_of_the_api_server_is_verified_behind_a_proxy(
    authority: Authority, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_proxy(port) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{proxy.port}")
        with pytest.raises(ClusterError, match="the certificate is not accepted: "):
            connect(authority, "https://other.example.test").request("GET", "/")


def test_a_proxy_by_socks_needs_a_package(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ClusterError, match=r"socks5://proxy of proxy-url .*pip install pysocks"):
        connect(authority, SERVER, **{"proxy-url": "socks5://user:secret@proxy"})


def test_a_proxy_by_socks_gets_the_name_of_the_server_and_the_credentials(
    authority: Authority, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for PySocks, which connects to the API server of this machine."""
    calls = []

    def create_connection(address: Any, **options: Any) -> socket.socket:
        calls.append((address, options))
        return socket.create_connection(("127.0.0.1", port))

    package: Any = types.ModuleType("socks")
    package.__spec__ = importlib.machinery.ModuleSpec("socks", None)
    package.create_connection = create_connection
    package.PROXY_TYPE_SOCKS5 = 2
    monkeypatch.setitem(sys.modules, "socks", package)
    monkeypatch.delitem(sys.modules, "urllib3.contrib.socks", raising=False)
    connection = connect(authority, SERVER, **{"proxy-url": "socks5://user:p%40ss@proxy:1080"})
    assert connection.request("GET", "/")["kind"] == "Status"
    ((address, options),) = calls
    assert address == ("api.example.test", 6443)
    assert options["proxy_rdns"] is True
    assert (options["proxy_addr"], options["proxy_port"]) == ("proxy", 1080)
    assert (options["proxy_username"], options["proxy_password"]) == ("user", "p@ss")
