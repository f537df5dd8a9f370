"""Create Kubernetes Events, which `kubectl get events` and `kubectl describe` show."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from cluster.api.connection import Connection
from cluster.api.errors import ClusterError, MissingError, Object

_CONTROLLER = "gpuward.io/gpuward"
_MAX_BYTES = 1024  # of a note; API servers refuse longer ones
_MAX_COUNT = 2**31 - 1  # the largest that API servers accept
# Where Events about objects without a namespace are.
_DEFAULT_NAMESPACE = "default"


class Regarding(NamedTuple):
    """The object that an Event is about; `namespace` may be empty."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class WarningEvent(NamedTuple):
    """The content of an Event of type Warning.

    `reason` and `action` are words in CamelCase: why, and what gpuward was doing. `note` is cut to
    the length that API servers accept. `instance` is who reports it.
    """

    regarding: Regarding
    reason: str
    action: str
    note: str
    instance: str


class EventsClient:
    """Writes Events; `request` sends a request, as `Connection.request` does.

    All methods raise ClusterError.
    """

    def __init__(self, request: Callable[..., Object]) -> None:
        self._request = request

    def create(self, metadata: Object, event: WarningEvent) -> None:
        """Create an Event with the `name` or `generateName` in `metadata`.

        The one right that this needs is to create `events` of `events.k8s.io` in the namespace.
        """
        regarding = event.regarding
        about = {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "name": regarding.name,
            "uid": regarding.uid,
        }
        if regarding.namespace:
            about["namespace"] = regarding.namespace
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {**metadata, "namespace": regarding.namespace or _DEFAULT_NAMESPACE},
            "eventTime": _now(),
            "reportingController": _CONTROLLER,
            "reportingInstance": event.instance,
            "action": event.action,
            "reason": event.reason,
            "type": "Warning",
            "regarding": about,
            "note": _cut(event.note),
        }
        self._request("POST", _path(regarding), body)

    def count(self, name: str, event: WarningEvent) -> None:
        """Create the Event `name`, or count it once more if it exists.

        API servers keep an Event that is counted as long as a new one. What it says must not
        change. This needs the rights to get, create and patch `events` of `events.k8s.io`.
        """
        path = f"{_path(event.regarding)}/{quote(name, safe='')}"
        try:
            found = self._request("GET", path)
        except MissingError:
            self.create({"name": name}, event)
            return
        more = {"count": min(_count_of(found) + 1, _MAX_COUNT), "lastObservedTime": _now()}
        self._request("PATCH", path, {"series": more}, "application/merge-patch+json")


class EventSource(NamedTuple):
    """The pod that reports events, by its namespace, name and uid."""

    namespace: str
    pod: str
    uid: str

    @classmethod
    def this_pod(cls) -> EventSource | None:
        """The pod in which this runs; None outside of pods.

        The manifest sets the variables POD_NAMESPACE, POD_NAME and POD_UID by the downward API.
        """
        known = os.environ.get
        source = cls(
            namespace=known("POD_NAMESPACE", ""),
            pod=known("POD_NAME", ""),
            uid=known("POD_UID", ""),
        )
        return source if all(source) else None

    def warn(self, connection: Connection, reason: str, action: str, text: str) -> None:
        """Create an Event about this pod: see `WarningEvent`. Raises ClusterError."""
        regarding = Regarding(
            api_version="v1", kind="Pod", namespace=self.namespace, name=self.pod, uid=self.uid
        )
        event = WarningEvent(
            regarding=regarding, reason=reason, action=action, note=text, instance=self.pod
        )
        EventsClient(connection.request).create({"generateName": f"{self.pod}-"}, event)


_REMIND_SECONDS = 1800.0  # below the hour for which API servers keep an event


class Reminders:
    """Creates an Event, and a line in `log`, when a problem begins and every half hour of it.

    `send` creates an Event with a reason and a text; it may raise ClusterError.
    """

    def __init__(
        self, send: Callable[[str, str], None], log: Any, monotonic: Callable[[], float]
    ) -> None:
        self._send = send
        self._log = log
        self._monotonic = monotonic
        self._reported_at: dict[str, float] = {}

    def update(self, problems: Mapping[str, str]) -> None:
        """Report what is due of `problems`, which has a text for the reason of each."""
        now = self._monotonic()
        self._reported_at = {r: at for r, at in self._reported_at.items() if r in problems}
        for reason, text in problems.items():
            if now - self._reported_at.get(reason, -math.inf) < _REMIND_SECONDS:
                continue
            self._reported_at[reason] = now
            self._log.error("reported", reason=reason, text=text)
            try:
                self._send(reason, text)
            except ClusterError as error:
                self._log.warning("event not created", error=str(error))


def event_sender(connection: Connection, reason: str, action: str) -> Callable[[str], None]:
    """Return a function that creates Events about the pod of this process.

    Outside of pods the function does nothing.

    What it returns raises ClusterError.
    """
    source = EventSource.this_pod()
    if source is None:
        return lambda _: None
    return lambda text: source.warn(connection, reason, action, text)


def _path(regarding: Regarding) -> str:
    namespace = quote(regarding.namespace or _DEFAULT_NAMESPACE, safe="")
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def _count_of(event: Object) -> int:
    """Return the count of an Event; 1 if it has none, as any user may edit it."""
    series = event.get("series")
    count = series.get("count") if isinstance(series, dict) else None
    return max(count, 1) if isinstance(count, int) else 1


def _now() -> str:
    return datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _cut(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= _MAX_BYTES:
        return text
    mark = "…"
    return encoded[: _MAX_BYTES - len(mark.encode())].decode(errors="ignore") + mark
