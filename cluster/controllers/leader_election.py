"""Leader election: of several controllers, only the holder of the Lease acts.

Two run at once during a rolling update. A holder that does not know yet that it lost the Lease does
no harm, because every write names the version that it read.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable

from cluster.api.errors import Cluster, ConflictError, Object

_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


class LeaderElection:
    """Competes for the Lease `name`, which the chart creates empty; `identity` must be unique.

    `seconds` is how long a holder may be silent before another takes over. It is measured by
    `monotonic` from the last renewal that was seen; clocks of machines are not compared.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        identity: str,
        *,
        seconds: float,
        monotonic: Callable[[], float],
        clock: Callable[[], datetime.datetime],
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._identity = identity
        self._seconds = seconds
        self._monotonic = monotonic
        self._clock = clock
        self._renewal: object = None
        self._renewal_seen_at = 0.0
        self._held_until = -math.inf

    @property
    def held(self) -> bool:
        """Whether the Lease is ours, and surely will be for some more time."""
        return self._monotonic() < self._held_until

    def acquire(self) -> bool:
        """Take or renew the Lease; whether it is ours now. ClusterError if that is unknown."""
        requested_at = self._monotonic()
        lease = self._cluster.get_lease(self._name)
        spec = lease.get("spec") or {}
        if not self._free(spec):
            self._held_until = -math.inf
            return False
        lease["spec"] = self._renewed(spec)
        try:
            self._cluster.update_lease(lease)
        except ConflictError:
            self._held_until = -math.inf
            return False
        # Counted from before the request, and shorter than other controllers wait.
        self._held_until = requested_at + self._seconds / 2
        return True

    def release(self) -> None:
        """Give up the Lease, so that another can take it immediately. Raises ClusterError."""
        if not self.held:
            return
        self._held_until = -math.inf
        lease = self._cluster.get_lease(self._name)
        if lease.get("spec", {}).get("holderIdentity") == self._identity:
            lease["spec"]["holderIdentity"] = ""
            self._cluster.update_lease(lease)

    def _free(self, spec: Object) -> bool:
        holder = spec.get("holderIdentity")
        if not holder or holder == self._identity:
            return True
        renewal = (holder, spec.get("renewTime"))
        if renewal != self._renewal:
            self._renewal, self._renewal_seen_at = renewal, self._monotonic()
            return False
        silent_for = self._monotonic() - self._renewal_seen_at
        return silent_for > max(self._seconds, spec.get("leaseDurationSeconds") or 0)

    def _renewed(self, spec: Object) -> Object:
        now = self._clock().strftime(_FORMAT)
        renewed = {
            **spec,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, math.ceil(self._seconds)),
            "renewTime": now,
        }
        if spec.get("holderIdentity") != self._identity:
            renewed["acquireTime"] = now
            renewed["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + 1
        return renewed
