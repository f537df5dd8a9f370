"""What the replicas serve: one TLS connection to each, and no rights needed."""

from __future__ import annotations

import hashlib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor

_SECONDS = 3.0
_AT_ONCE = 8


def served(host: str, port: int, server_name: str) -> dict[str, str | None] | None:
    """By address behind `host`, the fingerprint of the certificate it serves on `port`.

    None for an address that serves nothing; None altogether if no address is found.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    addresses = sorted({str(address[0]) for *_, address in found})
    if not addresses:
        return None
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        prints = pool.map(lambda address: _fingerprint(address, port, server_name), addresses)
        return dict(zip(addresses, prints, strict=True))


def _fingerprint(address: str, port: int, server_name: str) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate is only looked at, and nothing is sent.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # With 1.3 we have seen the certificate before the server may miss ours.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        with (
            socket.create_connection((address, port), timeout=_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=server_name) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
    except OSError:
        return None
    return hashlib.sha256(certificate).hexdigest() if certificate else None
