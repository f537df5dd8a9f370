"""Keep the CA bundle in the webhook configurations, whatever others write there."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Sequence

from cluster.protocols import Cluster, ConfigurationRef


class CaBundlePublisher:
    """Publishes the bundle to `configurations`; those that do not exist are ignored.

    `on_write` is called with each configuration that was written, and the names of its webhooks.
    """

    def __init__(
        self,
        cluster: Cluster,
        configurations: Sequence[ConfigurationRef],
        monotonic: Callable[[], float],
        on_write: Callable[[ConfigurationRef, Sequence[str]], None],
    ) -> None:
        self._cluster = cluster
        self._configurations = configurations
        self._monotonic = monotonic
        self._on_write = on_write
        self._bundle = b""
        self._since = 0.0

    def publish(self, bundle: bytes) -> datetime.timedelta | None:
        """Write `bundle` (PEM) where it is missing; returns for how long it has been in place.

        None for an empty bundle, which is never written. Raises ClusterError.
        """
        if not bundle:
            return None
        text = base64.b64encode(bundle).decode("ascii")
        written = [self._patch(configuration, text) for configuration in self._configurations]
        if any(written) or bundle != self._bundle:
            self._bundle, self._since = bundle, self._monotonic()
        return datetime.timedelta(seconds=self._monotonic() - self._since)

    def _patch(self, ref: ConfigurationRef, bundle: str) -> bool:
        """Write `bundle` (base64) to the webhooks that lack it; whether there were any."""
        configuration = self._cluster.get_configuration(ref)
        if configuration is None:
            return False
        webhooks = configuration.get("webhooks") or []
        indices = [
            index
            for index, webhook in enumerate(webhooks)
            if webhook.get("clientConfig", {}).get("caBundle") != bundle
        ]
        if not indices:
            return False
        version = configuration["metadata"]["resourceVersion"]
        self._cluster.write_bundle(ref, version, indices, bundle)
        self._on_write(ref, [webhooks[index]["name"] for index in indices])
        return True
