"""A webhook that admits and records every object, to see what match conditions send."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.complete_manifests import complete_manifest
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually
from tests.testkit.https_server import Answer, Request, https_server
from webhook.registration import NAME_LABEL, RegistrationOptions, configurations

PROBE = complete_manifest(pod(container(**variable("all"))), "", "probe")
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("mutating", "validating")


class RequestKey(NamedTuple):
    """Identifies a request: `mutate` or `validate`, the object's name, and the subresource."""

    phase: str
    name: str
    subresource: str


class Recorder:
    """Records the objects that the API server sent, by the name of the registration."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.requests: dict[str, dict[RequestKey, Any]] = {name: {} for name in names}

    def respond(self, request: Request) -> Answer:
        """Record one AdmissionReview and admit its object."""
        review = json.loads(request.body)
        sent = review.pop("request")
        name, phase = request.path.partition("?")[0].strip("/").split("/")[:2]
        key = RequestKey(phase, sent.get("name", ""), sent.get("subResource", ""))
        self.requests[name][key] = sent["object"]
        response = {"uid": sent["uid"], "allowed": True}
        return Answer(json.dumps({**review, "response": response}).encode())

    def names(self, registration: str) -> set[str]:
        """The names of the objects that came through a registration, in any request."""
        return {key.name for key in self.requests[registration]}


@contextmanager
def registered_recorder(
    cluster: Cluster, namespace: str, conditions: Mapping[str, str]
) -> Iterator[Recorder]:
    """Register a recorder for `namespace` once with each of `conditions`; an empty one is left out.

    The failure policy is Fail: if a condition cannot be evaluated, the object is refused.
    """
    recorder = Recorder(conditions)
    pair = cluster.authority.issue(f"recorder-{namespace}", hosts=["127.0.0.1"])
    with https_server(recorder.respond, pair.server_context()) as port:
        url = f"https://127.0.0.1:{port}"
        with _registered(cluster, namespace, url, conditions):
            eventually(lambda: _is_called(cluster, namespace, recorder), what="all are called")
            yield recorder


@contextmanager
def _registered(
    cluster: Cluster, namespace: str, url: str, conditions: Mapping[str, str]
) -> Iterator[None]:
    options = RegistrationOptions(
        Action.DENY, Action.DENY, failure_policy="Fail", timeout_seconds=30
    )
    created = []
    try:
        for name, condition in conditions.items():
            config = by_url(f"{url}/{name}", cluster.authority.bundle)
            full_name = f"{namespace}-{name}"
            for kind, configuration in zip(
                KINDS, configurations(full_name, config, options), strict=True
            ):
                path = f"{ADMISSION}/{kind}webhookconfigurations"
                configuration["webhooks"] = _only(configuration["webhooks"], namespace, condition)
                cluster.create(path, configuration)
                created.append(f"{path}/{full_name}")
        yield
    finally:
        for path in created:
            cluster.request("DELETE", path)


def _only(entries: list[dict[str, Any]], namespace: str, condition: str) -> list[dict[str, Any]]:
    """The webhooks for pods, restricted to that namespace."""
    term = {"key": NAME_LABEL, "operator": "In", "values": [namespace]}
    conditions = [{"name": "tested", "expression": condition}] if condition else []
    restriction = {"namespaceSelector": {"matchExpressions": [term]}, "matchConditions": conditions}
    return [{**entry, **restriction} for entry in entries if "workloads" not in entry["name"]]


def _is_called(cluster: Cluster, namespace: str, recorder: Recorder) -> bool:
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    probe = {**PROBE, "metadata": {"name": "probe", "namespace": namespace}}
    cluster.request("POST", path, probe)
    probe_keys = {RequestKey(phase, "probe", "") for phase in ("mutate", "validate")}
    return all(probe_keys <= requests.keys() for requests in recorder.requests.values())
