"""One review sent as API servers send it: by what stands in an entry, and trusting only that."""

from __future__ import annotations

import base64
import datetime
import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

SECONDS = 10.0  # for each step: to connect, to greet, to answer
MOST_BYTES = 1024 * 1024
_HEADERS = {"Content-Type": "application/json", "Connection": "close"}
_NAME_MISMATCH = (62, 64)  # OpenSSL's numbers, for a host name and an IP address
Address = tuple[str, int]


class Target(NamedTuple):
    """Where the reviews of an entry go; `bundle` (base64) is by what it is trusted.

    `service` is its namespace and name, None for an entry with a URL.
    """

    host: str
    port: int
    path: str
    bundle: str
    service: tuple[str, str] | None

    @property
    def url(self) -> str:
        """For the reader."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}{self.path}"


class Reply(NamedTuple):
    """An answer; `until` is when the certificate expires."""

    status: int
    body: bytes
    until: datetime.datetime


class CallError(Exception):
    """There was no answer; the text says why."""


class UntrustedError(CallError):
    """An API server would not trust the certificate."""


class UnknownNameError(CallError):
    """Nobody knows the address of the name."""


class UnreachedError(CallError):
    """Nobody was reached."""


class ClosedError(CallError):
    """Who was reached, and is trusted, hung up."""


def look(target: Target, address: Address | None = None) -> datetime.datetime:
    """When the certificate of `target` expires, which nothing is sent to; errors as of `post`."""
    with _connected(target, address) as connection:
        return _until(connection)


def post(target: Target, body: bytes, address: Address | None = None) -> Reply:
    """What `target` answers, reached at `address` if that is given. Raises CallError."""
    with _connected(target, address) as connection:
        until = _until(connection)
        client = http.client.HTTPConnection(target.host, target.port)
        client.sock = connection
        try:
            client.request("POST", target.path, body, _HEADERS)
            response = client.getresponse()
            answered = response.read(MOST_BYTES + 1)
        except (ConnectionError, ssl.SSLEOFError) as error:
            raise ClosedError("the connection was closed without an answer") from error
    if len(answered) > MOST_BYTES:
        raise CallError(f"the answer is longer than {MOST_BYTES} bytes")
    return Reply(response.status, answered, until)


@contextmanager
def _connected(target: Target, address: Address | None) -> Iterator[ssl.SSLSocket]:
    """A connection to `target`; whatever goes wrong with it is a CallError."""
    context = _context(target.bundle)
    try:
        with (
            socket.create_connection(address or (target.host, target.port), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=target.host) as connection,
        ):
            yield connection
    except ssl.SSLCertVerificationError as error:
        raise UntrustedError(_distrust(error, target)) from error
    except socket.gaierror as error:
        raise UnknownNameError(f"the name is not known here: {error.strerror}") from error
    except TimeoutError as error:
        raise UnreachedError(f"nothing came within {SECONDS:g} seconds") from error
    except (ConnectionError, ssl.SSLEOFError) as error:
        raise UnreachedError(_reason(error)) from error
    except ssl.SSLError as error:
        raise CallError(f"TLS failed: {_reason(error)}") from error
    except http.client.HTTPException as error:
        raise CallError(f"the answer is no HTTP: {type(error).__name__}") from error
    except OSError as error:
        raise UnreachedError(_reason(error)) from error


def _context(bundle: str) -> ssl.SSLContext:
    """A context that takes what an API server takes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    # To Go, whatever stands in the bundle is a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=base64.b64decode(bundle).decode("ascii"))
    except (OSError, ValueError) as error:
        raise UntrustedError("caBundle holds no certificate that can be read") from error
    return context


def _until(connection: ssl.SSLSocket) -> datetime.datetime:
    found = connection.getpeercert()
    if found is None:  # it was verified, so there is one
        raise UntrustedError("there is no certificate")
    seconds = ssl.cert_time_to_seconds(str(found["notAfter"]))
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)


def _distrust(error: ssl.SSLCertVerificationError, target: Target) -> str:
    if error.verify_code in _NAME_MISMATCH:
        return f"the certificate is not for {target.host}"
    return f"the certificate is not trusted by caBundle: {error.verify_message}"


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error) or type(error).__name__
