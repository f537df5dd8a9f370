"""`gpuward serve --dev`: a certificate for a while, and how to call the server with it."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import shlex
import tempfile
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TextIO

from certs.authority import new_authority, sign_leaf
from webhook.listener import parse_address
from webhook.registration import MODE_LABEL, Registration, configurations

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample-review.json")
CONFIGURATION = "webhook-configurations.json"
NAME = "gpuward-dev"
_LIFETIME = datetime.timedelta(days=30)
_REGISTRATION = Registration()
_TEXT = f"""\
gpuward answers at {{}}, until you stop it with Ctrl-C.

See it fix a faulty pod, and then what it refuses in it:
  {{}}
  {{}}

Register it with a cluster that can reach {{}}:
  kubectl apply -f {{}}
Namespaces choose their mode by the label {MODE_LABEL}; the others are in mode \
{_REGISTRATION.default.word}.
Where the server cannot be reached, objects are let through (failurePolicy \
{_REGISTRATION.failure_policy}). To undo it:
  kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration {NAME}
"""


class Development:
    """A folder with a certificate for the address `listen`, gone when the context is left.

    `server_name` is what the cluster calls this machine, if not by that address.
    """

    def __init__(self, listen: str | None, server_name: str | None) -> None:
        host = parse_address(listen)[0] if listen else ""
        # Where this machine finds the server, and where the cluster does.
        self._here = ("" if _is_any(host) else host) or "localhost"
        self._host = server_name or self._here
        self._stack = ExitStack()
        self.folder = ""
        self._bundle = b""

    def __enter__(self) -> Self:
        self.folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuward-"))
        now = datetime.datetime.now(tz=datetime.UTC)
        names = list(dict.fromkeys((self._host, self._here, "localhost", "127.0.0.1")))
        authority = new_authority(names, now, _LIFETIME)
        leaf = sign_leaf(authority, names, now, _LIFETIME)
        self._bundle = authority.certificate_pem
        self._write("ca.crt", self._bundle)
        self._write("tls.crt", leaf.certificate_pem)
        self._write("tls.key", leaf.key_pem)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def introduce(self, address: str, out: TextIO) -> str:
        """Say on `out` where the server is and how to call it; the configurations as JSON."""
        port = parse_address(address)[1]
        here, url = (f"https://{_bracketed(h)}:{port}" for h in (self._here, self._host))
        configuration = json.dumps(self._configuration(url), indent=2) + "\n"
        file = self._write(CONFIGURATION, configuration.encode())
        authority = os.path.join(self.folder, "ca.crt")
        call = (
            *("curl", "--silent", "--show-error", "--cacert", authority),
            *("--header", "Content-Type: application/json", "--data-binary", f"@{SAMPLE}"),
        )
        calls = [shlex.join((*call, here + path)) for path in ("/mutate/deny", "/validate/deny")]
        out.write(_TEXT.format(here, *calls, url, shlex.quote(file)))
        out.flush()
        return configuration

    def _configuration(self, url: str) -> dict[str, Any]:
        bundle = base64.b64encode(self._bundle).decode("ascii")
        both = configurations(
            NAME, lambda path: {"url": url + path, "caBundle": bundle}, _REGISTRATION
        )
        return {"apiVersion": "v1", "kind": "List", "items": list(both)}

    def _write(self, name: str, content: bytes) -> str:
        path = os.path.join(self.folder, name)
        with open(path, "wb") as stream:
            stream.write(content)
        return path


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
