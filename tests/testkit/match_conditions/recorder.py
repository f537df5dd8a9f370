"""A webhook that admits whatever it is sent, and keeps it: to see what match conditions let by."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from registration.configurations import NAME_LABEL, RegistrationOptions, configurations
from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.complete_manifests import completed
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually, free_port

PROBE = completed(pod(container(**variable("all"))), "", "probe")
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("mutating", "validating")


class Call(NamedTuple):
    """Which call it was: `mutate` or `validate`, the object's name, and its subresource."""

    phase: str
    name: str
    subresource: str


class Recorder:
    """What has come by each registration, by its name."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.calls: dict[str, dict[Call, Any]] = {name: {} for name in names}

    def answered(self, path: str, body: bytes) -> bytes:
        """The answer to one call, which says yes."""
        review = json.loads(body)
        request = review.pop("request")
        name, phase = path.partition("?")[0].strip("/").split("/")[:2]
        call = Call(phase, request.get("name", ""), request.get("subResource", ""))
        self.calls[name][call] = request["object"]
        response = {"uid": request["uid"], "allowed": True}
        return json.dumps({**review, "response": response}).encode()

    def names(self, registration: str) -> set[str]:
        """The objects that have come by a registration, in whatever call."""
        return {call.name for call in self.calls[registration]}


def _handler(recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body at once: in two pieces they wait for each other

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told = recorder.answered(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def recording(
    cluster: Cluster, namespace: str, conditions: Mapping[str, str]
) -> Iterator[Recorder]:
    """Register a recorder for `namespace` under each of `conditions`; an empty one is none.

    With the failure policy Fail: a condition that cannot be evaluated refuses the object.
    """
    recorder = Recorder(conditions)
    pair = cluster.authority.issue(f"recorder-{namespace}", hosts=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    with ThreadingHTTPServer(("127.0.0.1", free_port()), _handler(recorder)) as server:
        server.daemon_threads = True
        server.block_on_close = False
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"https://127.0.0.1:{server.server_address[1]}"
        try:
            with _registered(cluster, namespace, url, conditions):
                eventually(lambda: _is_called(cluster, namespace, recorder), what="all are called")
                yield recorder
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _registered(
    cluster: Cluster, namespace: str, url: str, conditions: Mapping[str, str]
) -> Iterator[None]:
    choices = RegistrationOptions(
        Action.DENY, Action.DENY, failure_policy="Fail", timeout_seconds=30
    )
    made = []
    try:
        for name, condition in conditions.items():
            config = by_url(f"{url}/{name}", cluster.authority.bundle)
            whole = f"{namespace}-{name}"
            for kind, configuration in zip(
                KINDS, configurations(whole, config, choices), strict=True
            ):
                path = f"{ADMISSION}/{kind}webhookconfigurations"
                configuration["webhooks"] = _only(configuration["webhooks"], namespace, condition)
                cluster.create(path, configuration)
                made.append(f"{path}/{whole}")
        yield
    finally:
        for path in made:
            cluster.request("DELETE", path)


def _only(entries: list[dict[str, Any]], namespace: str, condition: str) -> list[dict[str, Any]]:
    """The entries for pods, in that namespace alone."""
    term = {"key": NAME_LABEL, "operator": "In", "values": [namespace]}
    conditions = [{"name": "tested", "expression": condition}] if condition else []
    only = {"namespaceSelector": {"matchExpressions": [term]}, "matchConditions": conditions}
    return [{**entry, **only} for entry in entries if "workloads" not in entry["name"]]


def _is_called(cluster: Cluster, namespace: str, recorder: Recorder) -> bool:
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    sent = {**PROBE, "metadata": {"name": "probe", "namespace": namespace}}
    cluster.request("POST", path, sent)
    probes = {Call(phase, "probe", "") for phase in ("mutate", "validate")}
    return all(probes <= calls.keys() for calls in recorder.calls.values())
