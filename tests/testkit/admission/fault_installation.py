"""An installation as in a cluster: replicas behind a Service, and two registrations of it."""

from __future__ import annotations

import base64
import contextlib
import datetime
import itertools
import json
import ssl
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from certs.pki.authority import new_authority, service_names, sign_leaf
from certs.pki.keypairs import KeyPair
from registration.configurations import RegistrationOptions
from rules.finding import Action
from tests.testkit.admission.fault_load import REFUSED_POD, is_refused
from tests.testkit.admission.forwarder import Forwarder
from tests.testkit.admission.registered_webhook import Server, by_service, create, registered
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import Processes, eventually

PORT = 8443
# Seconds that the API server waits for an answer. A call that a busy machine makes late is not
# one that a fault of ours has lost.
PATIENT = 10
SERVICE = "gpuward"
_KINDS = {
    "mutating": "MutatingWebhookConfiguration",
    "validating": "ValidatingWebhookConfiguration",
}


def now() -> datetime.datetime:
    """The time, in UTC."""
    return datetime.datetime.now(tz=datetime.UTC)


class Secret:
    """A folder as the kubelet makes it of a Secret: all files change at one stroke."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = itertools.count()
        folder.mkdir()

    def put(self, pair: KeyPair) -> None:
        """Have it hold that certificate from now on."""
        version = self.folder / f"..{next(self._versions)}"
        version.mkdir()
        (version / "tls.crt").write_bytes(pair.certificate_pem)
        (version / "tls.key").write_bytes(pair.key_pem)
        (self.folder / "..new").symlink_to(version.name)
        (self.folder / "..new").rename(self.folder / "..data")
        for name in ("tls.crt", "tls.key"):
            with contextlib.suppress(FileExistsError):
                (self.folder / name).symlink_to(f"..data/{name}")


class Installation:
    """`strict` and `lenient` are namespaces in mode deny, failurePolicy Fail and Ignore.

    There is no replica until `replica()` starts one.
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
        self.secret = Secret(folder / "certificate")
        self.secret.put(self.leaf())
        self.forwarder = Forwarder(plane.expose(SERVICE, self.home, PORT), PORT)
        self.strict = plane.namespace()
        self.lenient = plane.namespace()

    def leaf(self, authority: KeyPair | None = None, seconds: float = 90 * 86400) -> KeyPair:
        """A new serving certificate that expires after so many seconds."""
        lifetime = datetime.timedelta(seconds=seconds)
        return sign_leaf(authority or self.authority, self.names, now(), lifetime)

    def replica(self, policy: str = "", *, drain: float = 3, front: tuple[str, ...] = ()) -> Server:
        """Start a replica and send connections to it.

        `front` stands in front of the command, between the interpreter and its module.
        """
        name = f"replica-{next(self._numbers)}"
        folder = self._folder / name
        folder.mkdir()
        # Each under a keeper of its own: they end one by one, and some not as asked.
        processes = _Fronted(folder, front)
        self._replicas.callback(processes.stop)
        arguments = ("--server-name", self.names[-1], "--drain-seconds", str(drain))
        server = Server(
            processes, folder, self.secret.folder, policy, name=name, arguments=arguments
        )
        self.forwarder.add(server.address)
        return server

    def publish(self, *authorities: KeyPair) -> None:
        """Write the bundle of these into the registrations, as the certificate controller does."""
        bundle = b"".join(pair.certificate_pem for pair in authorities)
        text = base64.b64encode(bundle).decode()
        for name, (door, kind) in itertools.product(("strict", "lenient"), _KINDS.items()):
            path = f"/apis/admissionregistration.k8s.io/v1/{door}webhookconfigurations/{name}"
            entries = self._plane.request("GET", path).body["webhooks"]
            wanted = {
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
                json.dumps(wanted).encode(),
                content_type="application/apply-patch+yaml",
            )
            assert answer.status == 200, answer.body

    def reconnect(self, *authorities: KeyPair) -> None:
        """Publish these, or the first, in a bundle that makes the API server connect anew."""
        # It does so for every text of a bundle that it has not seen.
        self.publish(*(authorities or (self.authority,)) * next(self._bundles))

    def enforced(self) -> None:
        """Wait until both registrations are in force."""
        eventually(lambda: self._judges(self.strict), what="the strict namespace is judged")
        eventually(lambda: self._judges(self.lenient), what="the lenient namespace is judged")

    def _judges(self, namespace: str) -> bool:
        return is_refused(create(self._plane, namespace, REFUSED_POD, dry_run=True))

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.forwarder)
            # They leave when nobody calls them any more.
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
        where = by_service(SERVICE, self.home, PORT, self.authority.certificate_pem)
        choices = RegistrationOptions(Action.DENY, failure_policy=policy, timeout_seconds=PATIENT)
        stack.enter_context(registered(self._plane, where, choices, name=name, only=namespace))


class _Fronted(Processes):
    """Starts what it is given with other words in front of its module."""

    def __init__(self, folder: Path, front: tuple[str, ...]) -> None:
        super().__init__(folder)
        self._front = front

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        """Start a program."""
        if self._front:
            command = [command[0], *self._front, *command[3:]]
        super().start(name, command, environment)

    def stop(self) -> None:
        """End all, in no good order: nobody calls them any more."""
        for name in self.ids:
            self.end(name, seconds=0)
        super().stop()


def has_left(server: Server) -> bool:
    """Whether the process of a server has ended (it may still have to be waited for)."""
    stat = Path(f"/proc/{server.process_id}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def served(server: Server) -> bytes:
    """The certificate, as PEM, that a new connection gets."""
    host, _, port = server.address.rpartition(":")
    return ssl.get_server_certificate((host, int(port))).encode()
