"""The answers of `gpuward doctor` about objects in memory."""

from __future__ import annotations

import json
from typing import Any, cast

from cluster.doctor.checks.dry_runs import NOT_WANTED
from cluster.doctor.checks.failed_calls import CountedCalls
from cluster.doctor.examination import examine
from cluster.doctor.facts import DoctorFacts, Request, read_facts
from cluster.doctor.rows import Row, State
from cluster.doctor.verdict import Verdict
from cluster.source.objects import GetError, MissingRightError, ObjectReader, Resource, SourceError
from cluster.webhooks.dry_runs import NotTried, SendPod
from policies.loading import default_policy
from policies.policy import Policy
from rules.finding import Action
from tests.testkit.cluster_commands.gpu_objects import Object
from webhook.registration import RegistrationOptions, configurations

NO_METRICS = 'apiserver_request_total{code="200"} 7\n'


class Objects:
    """Objects in memory.

    The account may not list the resources that are `forbidden`; the API server fails at those
    that are `broken`. Without `is_complete` they are from files.
    """

    def __init__(
        self,
        *objects: Object,
        forbidden: tuple[str, ...] = (),
        broken: tuple[str, ...] = (),
        is_complete: bool = True,
    ) -> None:
        self.is_complete = is_complete
        self._objects, self._forbidden, self._broken = objects, forbidden, broken

    def list(self, resource: Resource, namespace: str | None = None) -> Any:
        if resource.name in self._forbidden:
            raise MissingRightError(resource, namespace)
        if resource.name in self._broken:
            raise SourceError(f"cannot list {resource}: 500")
        return iter([item for item in self._objects if item["kind"] == resource.kind])

    def get(self, resource: Resource, namespace: str, name: str) -> Any:
        if resource.name in self._forbidden:
            right = f"get {resource} in namespace {namespace}"
            raise GetError(f"{resource.name}/{name}", "the account may not", right)
        found = (item for item in self.list(resource) if item["metadata"]["name"] == name)
        return next(found, None)


def examined(
    *objects: Object,
    forbidden: tuple[str, ...] = (),
    broken: tuple[str, ...] = (),
    request: Request | None = lambda _path: NO_METRICS,
    ask_kubelets: bool = False,
    tls_only: bool = False,
    policy: Policy | None = None,
    before: CountedCalls | None = None,
    send: SendPod | NotTried = NOT_WANTED,
) -> tuple[Verdict, list[Row]]:
    """The verdict, and all rows. `send` makes the dry runs."""
    is_complete = request is not None
    source = Objects(*objects, forbidden=forbidden, broken=broken, is_complete=is_complete)
    policy = policy or default_policy()
    facts: DoctorFacts = read_facts(cast("ObjectReader", source), policy, request)
    return examine(facts, send, before, ask_kubelets=ask_kubelets, tls_only=tls_only)


def rows(*objects: Object, **options: Any) -> dict[str, list[Row]]:
    """The rows by check, with the options of `examined`."""
    found: dict[str, list[Row]] = {}
    for row in examined(*objects, **options)[1]:
        found.setdefault(row.check, []).append(row)
        assert bool(row.remedy) == (row.state is not State.OK), row
    return found


def states(found: list[Row]) -> dict[str, State]:
    return {row.subject: row.state for row in found}


def installed(**changes: Any) -> list[Object]:
    """The configurations of gpuward; `changes` are made to the entries of the mutating one."""
    target = {"service": {"name": "gpuward", "namespace": "gpuward-system", "port": 443}}
    options = RegistrationOptions(default=Action.WARN)
    pair = configurations("gpuward", lambda path: {**target, "path": path}, options)
    for entry in pair[0]["webhooks"]:
        entry.update(changes)
    return list(pair)


def recorded(*objects: str, pair: list[Object] | None = None) -> Object:
    """The chart's record of the release of `installed()`, with the objects that it names."""
    expected = {"apiVersion": "v1", "kind": "List", "items": pair or installed()}
    data = {"expected.yaml": json.dumps(expected), "objects.txt": "\n".join(objects)}
    return in_release("ConfigMap", "gpuward-registration", data=data)


def in_release(kind: str, name: str, **fields: Any) -> Object:
    """An object in the namespace of the release of `installed()`."""
    return {"kind": kind, "metadata": {"name": name, "namespace": "gpuward-system"}, **fields}
