"""`gpuward serve --dev`: a temporary certificate, and instructions to call the server."""

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
from webhook.registration import MODE_LABEL, RegistrationOptions, configurations
from webhook.server.listener import parse_address

SAMPLE_REVIEW_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample-review.json")
CONFIGURATION_FILE = "webhook-configurations.json"
CONFIGURATION_NAME = "gpuward-dev"
_CERTIFICATE_LIFETIME = datetime.timedelta(days=30)
_REGISTRATION = RegistrationOptions()
_INSTRUCTIONS = f"""\
gpuward answers at {{}} until you stop it with Ctrl-C.

Send it a faulty pod. It fixes what it can, and then says what it refuses:
  {{}}
  {{}}

Register it with a cluster that can reach {{}}:
  kubectl apply -f {{}}
The label {MODE_LABEL} of a namespace sets its mode; the default is \
{_REGISTRATION.default.word}.
If the cluster cannot reach the server, objects pass without evaluation (failurePolicy \
{_REGISTRATION.failure_policy}). To undo it:
  kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration {CONFIGURATION_NAME}
"""


class DevelopmentServer:
    """A context manager for a temporary folder with a certificate for the address `listen`.

    `server_name` is the name by which the cluster reaches this machine, if not by that address.
    """

    def __init__(self, listen: str | None, server_name: str | None) -> None:
        host = parse_address(listen)[0] if listen else ""
        # The host by which this machine reaches the server, and the one for the cluster.
        self._local_host = ("" if _is_unspecified(host) else host) or "localhost"
        self._cluster_host = server_name or self._local_host
        self._stack = ExitStack()
        self.folder = ""
        self._bundle = b""

    def __enter__(self) -> Self:
        self.folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuward-"))
        now = datetime.datetime.now(tz=datetime.UTC)
        names = list(
            dict.fromkeys((self._cluster_host, self._local_host, "localhost", "127.0.0.1"))
        )
        authority = new_authority(names, now, _CERTIFICATE_LIFETIME)
        leaf = sign_leaf(authority, names, now, _CERTIFICATE_LIFETIME)
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

    def print_instructions(self, address: str, out: TextIO) -> str:
        """Print on `out` where the server is and how to call it; returns the configurations."""
        port = parse_address(address)[1]
        hosts = (self._local_host, self._cluster_host)
        local_url, url = (f"https://{_with_brackets(host)}:{port}" for host in hosts)
        configuration = json.dumps(self._configuration(url), indent=2) + "\n"
        file = self._write(CONFIGURATION_FILE, configuration.encode())
        authority = os.path.join(self.folder, "ca.crt")
        curl = (
            *("curl", "--silent", "--show-error", "--cacert", authority),
            *(
                "--header",
                "Content-Type: application/json",
                "--data-binary",
                f"@{SAMPLE_REVIEW_FILE}",
            ),
        )
        calls = [
            shlex.join((*curl, local_url + path)) for path in ("/mutate/deny", "/validate/deny")
        ]
        out.write(_INSTRUCTIONS.format(local_url, *calls, url, shlex.quote(file)))
        out.flush()
        return configuration

    def _configuration(self, url: str) -> dict[str, Any]:
        bundle = base64.b64encode(self._bundle).decode("ascii")
        both = configurations(
            CONFIGURATION_NAME, lambda path: {"url": url + path, "caBundle": bundle}, _REGISTRATION
        )
        return {"apiVersion": "v1", "kind": "List", "items": list(both)}

    def _write(self, name: str, content: bytes) -> str:
        path = os.path.join(self.folder, name)
        with open(path, "wb") as stream:
            stream.write(content)
        return path


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _with_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
