"""Find out which certificate each replica serves.

It opens a TLS connection to each replica, so it needs no permissions in the cluster.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor

_TIMEOUT_SECONDS = 3.0
_MAX_CONNECTIONS = 8


def served_certificates(host: str, port: int, server_name: str) -> dict[str, str | None] | None:
    """Return the SHA-256 of the certificate on `port` of each address of `host`.

    The value is None for an address that serves no certificate. Returns None if `host` has no
    address. `server_name` is the name that the client sends.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    addresses = sorted({str(address[0]) for *_, address in infos})
    if not addresses:
        return None
    with ThreadPoolExecutor(_MAX_CONNECTIONS) as pool:
        fingerprints = pool.map(lambda address: _fingerprint(address, port, server_name), addresses)
        return dict(zip(addresses, fingerprints, strict=True))


def _fingerprint(address: str, port: int, server_name: str) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The connection only reads the certificate and sends no data, so it need not verify anything.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # In TLS 1.3 the certificate arrives before the server can ask for a client certificate.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        with (
            socket.create_connection((address, port), timeout=_TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=server_name) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
    except OSError:
        return None
    return hashlib.sha256(certificate).hexdigest() if certificate else None
