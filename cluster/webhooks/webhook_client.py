"""Call a webhook as API servers do: at the address in its entry, trusting only its caBundle."""

from __future__ import annotations

import base64
import datetime
import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

SECONDS = 10.0  # for each step: connection, TLS handshake, response
MAX_BYTES = 1024 * 1024
_HEADERS = {"Content-Type": "application/json", "Connection": "close"}
_NAME_MISMATCH = (62, 64)  # OpenSSL's numbers, for a host name and an IP address
Address = tuple[str, int]


class Target(NamedTuple):
    """The address to which API servers send the reviews of an entry.

    `bundle` is the caBundle (base64). `service` is the namespace and name of the Service; None for
    an entry with a URL.
    """

    host: str
    port: int
    path: str
    bundle: str
    service: tuple[str, str] | None

    @property
    def url(self) -> str:
        """The address as a URL, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}{self.path}"


class Validity(NamedTuple):
    """From when until when a certificate is valid, in UTC."""

    start: datetime.datetime
    end: datetime.datetime


class Reply(NamedTuple):
    """A response; `validity` is that of the server's certificate."""

    status: int
    body: bytes
    validity: Validity


class CallError(Exception):
    """There was no valid response; the message says why."""


class UntrustedError(CallError):
    """An API server would not trust the certificate."""


class UnknownNameError(CallError):
    """The name cannot be resolved."""


class UnreachableError(CallError):
    """No server could be reached."""


class ConnectionClosedError(CallError):
    """A trusted server closed the connection."""


def peer_validity(target: Target, address: Address | None = None) -> Validity:
    """The validity of the certificate of `target`; sends nothing. Errors as of `post`."""
    with _connected(target, address) as connection:
        return _peer_validity(connection)


def post(target: Target, body: bytes, address: Address | None = None) -> Reply:
    """Send `body` to `target`, or to `address` if given. Raises CallError."""
    with _connected(target, address) as connection:
        validity = _peer_validity(connection)
        client = http.client.HTTPConnection(target.host, target.port)
        client.sock = connection
        try:
            client.request("POST", target.path, body, _HEADERS)
            response = client.getresponse()
            content = response.read(MAX_BYTES + 1)
        except (ConnectionError, ssl.SSLEOFError) as error:
            raise ConnectionClosedError("the connection was closed without a response") from error
    if len(content) > MAX_BYTES:
        raise CallError(f"the response is longer than {MAX_BYTES} bytes")
    return Reply(status=response.status, body=content, validity=validity)


def validity_of(certificate: Mapping[str, object]) -> Validity:
    """The validity of a certificate as the module `ssl` describes it."""
    return Validity(
        start=_time(str(certificate["notBefore"])), end=_time(str(certificate["notAfter"]))
    )


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(text), tz=datetime.UTC)


@contextmanager
def _connected(target: Target, address: Address | None) -> Iterator[ssl.SSLSocket]:
    """A TLS connection to `target`; all errors become CallErrors."""
    context = context_of(target.bundle)
    try:
        with (
            socket.create_connection(address or (target.host, target.port), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=target.host) as connection,
        ):
            yield connection
    except ssl.SSLCertVerificationError as error:
        raise UntrustedError(_verification_failure(error, target)) from error
    except socket.gaierror as error:
        raise UnknownNameError(f"the name cannot be resolved here: {error.strerror}") from error
    except TimeoutError as error:
        raise UnreachableError(f"no response within {SECONDS:g} seconds") from error
    except (ConnectionError, ssl.SSLEOFError) as error:
        raise UnreachableError(_reason(error)) from error
    except ssl.SSLError as error:
        raise CallError(f"TLS failed: {_reason(error)}") from error
    except http.client.HTTPException as error:
        raise CallError(f"the response is no HTTP: {type(error).__name__}") from error
    except OSError as error:
        raise UnreachableError(_reason(error)) from error


def context_of(bundle: str) -> ssl.SSLContext:
    """A context that trusts what an API server would trust by a caBundle; or UntrustedError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    # Go trusts every certificate in the bundle as a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=base64.b64decode(bundle).decode("ascii", "ignore"))
    except (OSError, ValueError) as error:
        raise UntrustedError("caBundle holds no certificate that can be read") from error
    return context


def _peer_validity(connection: ssl.SSLSocket) -> Validity:
    certificate = connection.getpeercert()
    if certificate is None:  # impossible: it was verified
        raise UntrustedError("there is no certificate")
    return validity_of(certificate)


def _verification_failure(error: ssl.SSLCertVerificationError, target: Target) -> str:
    if error.verify_code in _NAME_MISMATCH:
        return f"the certificate is not for {target.host}"
    return f"the certificate is not trusted by caBundle: {error.verify_message}"


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error) or type(error).__name__
