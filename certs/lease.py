"""Who of several controllers works: the holder of the Lease.

A rolling update lets two run at once. Even a holder that does not know yet that it lost the
Lease can do no harm: every write names the version that it read.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable

from certs.api import Cluster, ConflictError, Object

_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


class Leadership:
    """The Lease `name`, which the chart makes, empty; `identity` is ours alone.

    `seconds` is how long a holder may be silent before another takes over. It is counted by
    `monotonic` from when the last sign of life was seen; clocks of machines are not compared.
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
        self._seen: object = None
        self._seen_at = 0.0
        self._held_until = -math.inf

    @property
    def held(self) -> bool:
        """Whether the Lease is ours, and will be for a while yet."""
        return self._monotonic() < self._held_until

    def acquire(self) -> bool:
        """Take or renew the Lease; whether it is ours now. ClusterError if that is not known."""
        asked_at = self._monotonic()
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
        # From before the request, and less than others wait.
        self._held_until = asked_at + self._seconds / 2
        return True

    def release(self) -> None:
        """Let another take over at once. Raises ClusterError."""
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
        sign_of_life = (holder, spec.get("renewTime"))
        if sign_of_life != self._seen:
            self._seen, self._seen_at = sign_of_life, self._monotonic()
            return False
        silent_for = self._monotonic() - self._seen_at
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
