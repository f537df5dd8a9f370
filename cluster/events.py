"""Create Kubernetes Events, which `kubectl get events` and `kubectl describe pod` show."""

from __future__ import annotations

import datetime
import os
from typing import NamedTuple
from urllib.parse import quote

from cluster.connection import Connection

_CONTROLLER = "gpuward.io/gpuward"
_MAX_BYTES = 1024  # of a note; API servers refuse longer ones


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
        values = [os.environ.get(f"POD_{part}", "") for part in ("NAMESPACE", "NAME", "UID")]
        return cls(*values) if all(values) else None

    def warn(self, connection: Connection, reason: str, action: str, text: str) -> None:
        """Create an Event of type Warning about this pod. Raises ClusterError.

        `reason` and `action` are words in CamelCase: why, and what gpuward was doing. `text` is cut
        to the length that API servers accept. The one right that this needs is to create `events`
        of `events.k8s.io` in the namespace.
        """
        now = datetime.datetime.now(tz=datetime.UTC)
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.pod}-", "namespace": self.namespace},
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": _CONTROLLER,
            "reportingInstance": self.pod,
            "action": action,
            "reason": reason,
            "type": "Warning",
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": self.namespace,
                "name": self.pod,
                "uid": self.uid,
            },
            "note": _cut(text),
        }
        namespace = quote(self.namespace, safe="")
        connection.request("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)


def _cut(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= _MAX_BYTES:
        return text
    mark = "…"
    return encoded[: _MAX_BYTES - len(mark.encode())].decode(errors="ignore") + mark
