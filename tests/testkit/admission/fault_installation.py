"""An installation as in a cluster: replicas behind a Service, registered twice."""

from __future__ import annotations

import base64
import datetime
import itertools
import json
import ssl
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from certs.authority import new_authority, service_names, sign_leaf
from certs.keypairs import KeyPair
from rules.finding import Action
from tests.testkit.admission.fault_load import REFUSED_POD, is_refused
from tests.testkit.admission.forwarder import Forwarder
from tests.testkit.admission.mounted_secret import MountedSecret
from tests.testkit.admission.registered_webhook import by_service, create, registered
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.control_plane.webhooks import await_webhooks
from webhook.registration import RegistrationOptions

PORT = 8443
# Seconds that the API server waits for a response, long enough for a busy machine: only the
# injected fault may make a request fail.
TIMEOUT_SECONDS = 30
SERVICE = "gpuward"
_KINDS = {
    "mutating": "MutatingWebhookConfiguration",
    "validating": "ValidatingWebhookConfiguration",
}


def now() -> datetime.datetime:
    """The time, in UTC."""
    return datetime.datetime.now(tz=datetime.UTC)


class Installation:
    """`strict` and `lenient` are namespaces in mode deny, failurePolicy Fail and Ignore.

    It has no replica until `replica()` starts one.
    """

    def __init__(self, plane: Cluster, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._numbers = itertools.count(1)
        self._bundles = itertools.count(2)
        self._stack = ExitStack()
        self._replicas = ExitStack()
        self.home = plane.namespace()
        self.names = service_names(SERVICE, self.home)
        self.authority = new_authority(self.names, now())
        self.secret = MountedSecret(folder / "certificate")
        self.secret.put(self.leaf())
        self.forwarder = Forwarder(plane.expose(SERVICE, self.home, PORT), PORT)
        self.strict = plane.namespace()
        self.lenient = plane.namespace()

    def leaf(self, authority: KeyPair | None = None, seconds: float = 90 * 86400) -> KeyPair:
        """A new serving certificate that expires after `seconds`."""
        lifetime = datetime.timedelta(seconds=seconds)
        return sign_leaf(authority or self.authority, self.names, now(), lifetime)

    def replica(
        self, policy: str = "", *, drain: float = 3, program: tuple[str, ...] = ()
    ) -> Server:
        """Start a replica and send connections to it.

        With `program`, the interpreter runs that script with its arguments instead of
        `-m gpuward`.
        """
        name = f"replica-{next(self._numbers)}"
        folder = self._folder / name
        folder.mkdir()
        # Each replica has its own Processes, because the tests end replicas one by one.
        processes = _ReplicaProcesses(folder, program)
        self._replicas.callback(processes.stop)
        arguments = ("--server-name", self.names[-1], "--drain-seconds", str(drain))
        server = Server(
            processes, folder, self.secret.folder, policy, name=name, arguments=arguments
        )
        self.forwarder.add(server.address)
        return server

    def publish(self, *authorities: KeyPair) -> None:
        """Write the bundle of `authorities` into both registrations, as the controller does.

        The API server goes by it when this returns.
        """
        bundle = b"".join(pair.certificate_pem for pair in authorities)
        text = base64.b64encode(bundle).decode()
        for name, (prefix, kind) in itertools.product(("strict", "lenient"), _KINDS.items()):
            path = f"/apis/admissionregistration.k8s.io/v1/{prefix}webhookconfigurations/{name}"
            entries = self._plane.request("GET", path).body["webhooks"]
            applied = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": name},
                "webhooks": [
                    {"name": entry["name"], "clientConfig": {"caBundle": text}} for entry in entries
                ],
            }
            answer = self._plane.request(
                "PATCH",
                f"{path}?fieldManager=gpuward-certs&force=true",
                json.dumps(applied).encode(),
                content_type="application/apply-patch+yaml",
            )
            assert answer.status == 200, answer.body
        await_webhooks(self._plane)

    def reconnect(self, *authorities: KeyPair) -> None:
        """Publish `authorities`, or the first one, so that the API server opens new connections."""
        # It opens new connections for each bundle text that it has not used before.
        self.publish(*(authorities or (self.authority,)) * next(self._bundles))

    def wait_until_enforced(self) -> None:
        """Wait until the API server calls the webhooks of both registrations."""
        eventually(lambda: self._is_enforced(self.strict), what="the strict namespace is enforced")
        eventually(
            lambda: self._is_enforced(self.lenient), what="the lenient namespace is enforced"
        )

    def _is_enforced(self, namespace: str) -> bool:
        return is_refused(create(self._plane, namespace, REFUSED_POD, dry_run=True))

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.forwarder)
            # The replicas end after the registrations are gone.
            stack.enter_context(self._replicas)
            self._register(stack, "strict", self.strict, "Fail")
            self._register(stack, "lenient", self.lenient, "Ignore")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _register(
        self, stack: ExitStack, name: str, namespace: str, policy: Literal["Fail", "Ignore"]
    ) -> None:
        client_config = by_service(SERVICE, self.home, PORT, self.authority.certificate_pem)
        options = RegistrationOptions(
            Action.DENY, failure_policy=policy, timeout_seconds=TIMEOUT_SECONDS
        )
        stack.enter_context(
            registered(self._plane, client_config, options, name=name, only=namespace)
        )


class _ReplicaProcesses(Processes):
    """Starts replicas, with another program in place of `-m gpuward` if one is given."""

    def __init__(self, folder: Path, program: tuple[str, ...]) -> None:
        super().__init__(folder)
        self._program = program

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        """Start a program."""
        if self._program:
            command = [command[0], *self._program, *command[3:]]
        super().start(name, command, environment)

    def stop(self) -> None:
        """End all at once: the API server no longer calls them."""
        for name in self.ids:
            self.end(name, seconds=0)
        super().stop()


def has_left(server: Server) -> bool:
    """Return whether the process of a server has ended, even if it was not waited for yet."""
    stat = Path(f"/proc/{server.process_id}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def served(server: Server) -> bytes:
    """The certificate, as PEM, that the server shows on a new connection."""
    host, _, port = server.address.rpartition(":")
    return ssl.get_server_certificate((host, int(port))).encode()
