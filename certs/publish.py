"""Keep the bundle in the webhook configurations, whatever others write there."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Sequence
from typing import NamedTuple

from certs.api import Cluster, Kind


class Configuration(NamedTuple):
    """A webhook configuration of ours."""

    kind: Kind
    name: str


class Publisher:
    """Publishes to `configurations`; one that does not exist (yet) is nobody's loss.

    `on_write` is told each configuration that had to be written, and its webhooks.
    """

    def __init__(
        self,
        cluster: Cluster,
        configurations: Sequence[Configuration],
        monotonic: Callable[[], float],
        on_write: Callable[[Configuration, Sequence[str]], None],
    ) -> None:
        self._cluster = cluster
        self._configurations = configurations
        self._monotonic = monotonic
        self._on_write = on_write
        self._bundle = b""
        self._since = 0.0

    def publish(self, bundle: bytes) -> datetime.timedelta | None:
        """Write `bundle` (PEM) where it is not; for how long it has been seen in place.

        None for an empty bundle, which is never written. Raises ClusterError.
        """
        if not bundle:
            return None
        text = base64.b64encode(bundle).decode("ascii")
        written = [self._heal(configuration, text) for configuration in self._configurations]
        if any(written) or bundle != self._bundle:
            self._bundle, self._since = bundle, self._monotonic()
        return datetime.timedelta(seconds=self._monotonic() - self._since)

    def _heal(self, configuration: Configuration, text: str) -> bool:
        found = self._cluster.get_configuration(*configuration)
        webhooks = (found or {}).get("webhooks") or []
        places = [
            place
            for place, webhook in enumerate(webhooks)
            if webhook.get("clientConfig", {}).get("caBundle") != text
        ]
        if found is None or not places:
            return False
        version = found["metadata"]["resourceVersion"]
        self._cluster.write_bundle(*configuration, version, places, text)
        self._on_write(configuration, [webhooks[place]["name"] for place in places])
        return True
