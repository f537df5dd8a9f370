"""The proxy to an API server: the one that kubectl, and all clients in Go, would use.

Sources: golang.org/x/net, `http/httpproxy/proxy.go`, for the variables of the environment;
Kubernetes, `staging/src/k8s.io/client-go/tools/clientcmd`, for `proxy-url` in kubeconfig files.
`tests/data/proxies.tsv` has what httpproxy answers.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from cluster.api.errors import ClusterError

PROXY_URL = "proxy-url in the kubeconfig file"
_VARIABLES_BY_SCHEME = {
    "http": ("HTTP_PROXY", "http_proxy"),
    "https": ("HTTPS_PROXY", "https_proxy"),
}
_SERVER_PORT_BY_SCHEME = {"http": "80", "https": "443"}
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_MAX_PORT = 65535
# Go refuses the same characters in the user and the password.
_PROXY_PATTERN = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?"
    r"(?:(?P<user>(?:[\w.~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})*)"
    r"(?::(?P<password>(?:[\w.~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*))?@)?"
    r"(?P<address>(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{0,5}))?)"
    r"(?:[/?#](?!/).*)?",
    re.ASCII,
)
_HOST_AND_PORT_PATTERN = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)")

_IP = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclasses.dataclass(frozen=True)
class Proxy:
    """A proxy: its scheme, and its host with a port or without.

    `origin` is the name of what chose it, for messages. `user` is None if there are no credentials.
    """

    scheme: str
    address: str
    origin: str
    user: str | None = dataclasses.field(default=None, repr=False)
    password: str = dataclasses.field(default="", repr=False)

    def __str__(self) -> str:
        return f"the proxy {self.scheme}://{self.address} of {self.origin}"

    @property
    def is_socks(self) -> bool:
        """Return whether it speaks SOCKS and not HTTP."""
        return self.scheme.startswith("socks")

    @property
    def url(self) -> str:
        """The URL for urllib3, which reads credentials in it only for SOCKS."""
        if not self.is_socks:
            return f"{self.scheme}://{self.address}"
        credentials = ""
        if self.user is not None:
            credentials = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@"
        # Go lets the proxy resolve names by either scheme; urllib3 only by this one.
        return f"socks5h://{credentials}{self.address}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers for an HTTP proxy, which hold its credentials."""
        if self.is_socks or self.user is None:
            return {}
        credentials = b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Proxy-Authorization": f"Basic {credentials}"}


def proxy_for(
    server: str, environment: Mapping[str, str], proxy_url: object = None
) -> Proxy | None:
    """The proxy through which to connect to the URL `server`; None to connect directly.

    `proxy_url` is what the kubeconfig file says for this cluster. It counts before the environment,
    and for every address. Raises ClusterError, without credentials in its text, for a proxy that
    cannot be used; Go would connect directly where the environment names such a one.
    """
    if proxy_url:
        return _proxy(proxy_url, PROXY_URL)
    scheme = server.partition("://")[0]
    variable = _first_set(environment, *_VARIABLES_BY_SCHEME.get(scheme, ()))
    if variable is None:
        return None
    if scheme == "http" and environment.get("REQUEST_METHOD"):
        # A web server's client chooses HTTP_PROXY there, by a header `Proxy`.
        raise ClusterError(f"{variable}: not used where REQUEST_METHOD is set, as in CGI programs")
    exceptions = environment.get(_first_set(environment, "NO_PROXY", "no_proxy") or "", "")
    if _is_direct(_server_address(server), exceptions):
        return None
    return _proxy(environment[variable], variable)


def _first_set(environment: Mapping[str, str], *names: str) -> str | None:
    return next((name for name in names if environment.get(name)), None)


def _proxy(text: object, origin: str) -> Proxy:
    """The proxy that `text` describes, in which Go assumes `http://` where there is no scheme."""
    found = _PROXY_PATTERN.fullmatch(text) if isinstance(text, str) else None
    if found is None or int(found["port"] or 0) > _MAX_PORT:
        raise ClusterError(
            f"{origin}: is no URL of a proxy, such as http://proxy.example.com:3128, "
            "in which special characters of a password are written as %40"
        )
    scheme = (found["scheme"] or "http").lower()
    if scheme not in _PROXY_SCHEMES:
        raise ClusterError(f"{origin}: the scheme {scheme} is none of {', '.join(_PROXY_SCHEMES)}")
    user = None if found["user"] is None else unquote(found["user"])
    return Proxy(scheme, found["address"], origin, user, unquote(found["password"] or ""))


class _Address(NamedTuple):
    """Host and port of a server. `ip` is None if the host is a name."""

    host: str
    port: str
    ip: _IP | None


def _server_address(server: str) -> _Address:
    scheme, _, rest = server.partition("://")
    authority = re.split("[/?#]", rest)[0].rpartition("@")[2]
    host, port = _host_and_port(authority)
    host = _to_ascii(unquote(host).removeprefix("[").removesuffix("]"))
    return _Address(host, port or _SERVER_PORT_BY_SCHEME[scheme], _ip(host.partition("%")[0]))


def _is_direct(address: _Address, exceptions: str) -> bool:
    """Return whether no proxy serves `address`, by the comma-separated entries of NO_PROXY."""
    if address.host == "localhost" or (address.ip and address.ip.is_loopback):
        return True
    return any(_covers(entry.strip().lower(), address) for entry in exceptions.split(","))


def _covers(entry: str, address: _Address) -> bool:
    """Return whether an entry of NO_PROXY is about `address`.

    It is `*`, a network such as 10.0.0.0/8, or an IP address or a domain, each of them with a port
    or without.
    """
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return address.ip is not None and address.ip in network
    host, port = _host_and_port(entry)
    if port not in ("", address.port):
        return False
    if (ip := _ip(host)) is not None:
        return ip == address.ip
    return bool(host) and address.ip is None and _is_in_domain(address.host.lower(), host)


def _is_in_domain(host: str, domain: str) -> bool:
    """Return whether `host` is in `domain`.

    `.example.com` and `*.example.com` have only subdomains.
    """
    only_subdomains = domain.startswith((".", "*."))
    parent = _to_ascii(domain.removeprefix("*").removeprefix(".") if only_subdomains else domain)
    return host.endswith(f".{parent}") or (host == parent and not only_subdomains)


def _host_and_port(text: str) -> tuple[str, str]:
    """Return the two parts of `host:port` or `[host]:port`; else all of `text`, and no port."""
    if (found := _HOST_AND_PORT_PATTERN.fullmatch(text)) is None:
        return text, ""
    return found[1] or found[2] or "", found[3]


def _ip(text: str) -> _IP | None:
    """The IP address that `text` is; one of IPv4 if it is mapped into IPv6."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The network that `text` is, an address and the length of its prefix; None if it is none."""
    address, _, length = text.partition("/")
    if not re.fullmatch("[0-9]+", length) or "%" in address:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _to_ascii(host: str) -> str:
    """The form of an international domain name that DNS knows."""
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host
