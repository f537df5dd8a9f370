"""The latest decisions of the webhook, read from the log of its pods."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from cluster.api.errors import ClusterError
from rules.base.json_values import as_object, as_objects, as_text

OUTCOMES = ("denied", "fixed", "not-evaluated", "warned", "audited", "excepted")
"""The outcomes of an object in the log."""
MAX_DECISIONS = 1_000
MAX_PODS = 20
_MAX_LINES, _MAX_BYTES = 1_000, 2_000_000  # of the log of one pod, each time
_MAX_LINE_CHARACTERS = 64_000
_MAX_REASONS = 20  # as many as the log has
_MAX_TEXT_CHARACTERS = 300
CONTAINER = "webhook"


class Reason(NamedTuple):
    """A finding or a fix: its rule with its outcome, the container, and the field."""

    rule: str
    outcome: str
    container: str
    path: str


class LoggedDecision(NamedTuple):
    """A decision as docs/webhook-server.md describes it. `time` is a text in UTC, to sort by."""

    time: str
    outcome: str
    namespace: str
    kind: str
    name: str
    owner: str
    operation: str
    mode: str
    user: str
    is_dry_run: bool
    reasons: tuple[Reason, ...]
    failures: tuple[str, ...]
    milliseconds: float


class Replica(NamedTuple):
    """A pod of the webhook, as far as its log says: empty texts are not known.

    `policy` is the digest of its policy; `certificate_end` is until when its certificate is valid.
    `problem` is the last refusal of a policy or a certificate that is not over.
    """

    pod: str
    version: str = ""
    policy: str = ""
    certificate_end: str = ""
    problem: str = ""


class DecisionLog:
    """The last decisions, in memory; also those of pods that are gone since. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decisions: dict[tuple[str, str], LoggedDecision] = {}
        self._replicas: dict[str, Replica] = {}

    def read(
        self, get_text: Callable[[str], str], namespace: str, pods: Iterable[str]
    ) -> list[ClusterError]:
        """Read the end of the logs of these pods; the errors of those that cannot be read.

        `get_text` reads the text at a path of the API server.
        """
        query = f"container={CONTAINER}&tailLines={_MAX_LINES}&limitBytes={_MAX_BYTES}"
        names = sorted(pods)[:MAX_PODS]
        with self._lock:
            self._replicas = {name: self._replicas.get(name, Replica(name)) for name in names}
        errors = []
        for name in names:
            place = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
            try:
                text = get_text(f"{place}/log?{query}")
            except ClusterError as error:
                errors.append(error)
            else:
                self.take(name, text)
        return errors

    def take(self, pod: str, text: str) -> None:
        """Take in what the log of one pod says; lines that were read before count once."""
        lines = [line for line in map(_line, text.split("\n")) if line]
        with self._lock:
            replica = self._replicas.get(pod, Replica(pod))
            for line in lines:
                if line.get("event") in OUTCOMES and line.get("uid"):
                    key = as_text(line.get("uid")), as_text(line.get("path"))
                    self._decisions[key] = _decision(line)
                else:
                    replica = _after(replica, line)
            self._replicas[pod] = replica
            if len(self._decisions) > MAX_DECISIONS:
                newest = sorted(self._decisions.items(), key=lambda item: item[1].time)
                self._decisions = dict(newest[-MAX_DECISIONS:])

    @property
    def decisions(self) -> tuple[LoggedDecision, ...]:
        """Return the known decisions, the newest first."""
        with self._lock:
            found = [*self._decisions.values()]
        return tuple(sorted(found, key=lambda one: one.time, reverse=True))

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The pods that there are, by name."""
        with self._lock:
            return tuple(self._replicas[name] for name in sorted(self._replicas))


def _line(text: str) -> Mapping[str, Any]:
    """The object in a line; empty if it has none, as a line that was cut at an end of the text."""
    if not text.startswith("{") or len(text) > _MAX_LINE_CHARACTERS:
        return {}
    try:
        return as_object(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _decision(line: Mapping[str, Any]) -> LoggedDecision:
    outcomes = as_object(line.get("rules"))
    prefix = _text(line, "generate_name")
    name = _text(line, "name") or (f"{prefix}…" if prefix else "")
    owner = f"{_text(line, 'owner_kind')} {_text(line, 'owner_name')}".strip()
    duration = line.get("duration_ms")
    failures = line.get("failures")
    failures = failures if isinstance(failures, list) else []
    return LoggedDecision(
        time=_text(line, "time"),
        outcome=_text(line, "event"),
        namespace=_text(line, "namespace"),
        kind=_text(line, "kind"),
        name=name,
        owner=owner,
        operation=_text(line, "operation"),
        mode=_text(line, "mode"),
        user=_text(line, "user"),
        is_dry_run=line.get("dry_run") is True,
        reasons=tuple(
            Reason(
                rule=_text(reason, "rule"),
                outcome=_cut(outcomes.get(as_text(reason.get("rule")))),
                container=_text(reason, "container"),
                path=_text(reason, "path"),
            )
            for _, reason in [*as_objects(line.get("reasons"))][:_MAX_REASONS]
        ),
        failures=tuple(map(_cut, failures[:_MAX_REASONS])),
        milliseconds=float(duration) if isinstance(duration, int | float) else 0.0,
    )


def _after(replica: Replica, line: Mapping[str, Any]) -> Replica:
    """Return what is known of a pod after a line of its log."""
    event = as_text(line.get("event"))
    match event:
        case "starting":
            return Replica(replica.pod, _text(line, "version"))
        case "serving":
            return replica._replace(policy=_text(line, "policy"))
        case "policy loaded" | "policy restored":
            return replica._replace(policy=_text(line, "digest"), problem="")
        case "certificate loaded" | "certificate restored":
            return replica._replace(certificate_end=_text(line, "not_after"), problem="")
        case "policy refused" | "certificate refused" | "certificate expired":
            return replica._replace(problem=f"{event}: {_text(line, 'error')}".rstrip(": "))
    return replica


def _text(line: Mapping[str, Any], field: str) -> str:
    return _cut(line.get(field))


def _cut(value: object) -> str:
    return as_text(value)[:_MAX_TEXT_CHARACTERS]
