"""A caller that sends requests to the webhook without a pause and records every failure."""

from __future__ import annotations

import socket
import ssl

from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.background import BackgroundThread
from tests.testkit.chart.installation import Installation
from tests.testkit.control_plane.processes import eventually

PAUSE = 0.05


class ContinuousCaller(BackgroundThread):
    """Check until the end of the block that the webhook refuses and fixes pods in `namespace`.

    An API server reuses its connections, so it does not notice a new certificate that it would
    not trust. Each round therefore also opens a new connection that trusts the published bundle.
    The end of the block raises an AssertionError if a round failed, unless the block itself
    raised.
    """

    def __init__(self, installation: Installation, namespace: str) -> None:
        super().__init__("continuous-caller")
        self._installation = installation
        self._namespace = namespace
        self._errors: list[Exception] = []
        self._rounds = 0

    def wait_for_calls(self, rounds: int = 5) -> None:
        """Wait for `rounds` more rounds, and fail if a round failed."""
        goal = self._rounds + rounds
        eventually(lambda: self._errors or self._rounds >= goal, what="calls go on")
        self.check()

    def check(self) -> None:
        """Fail if a round failed."""
        assert self._errors == [], self._errors

    def run(self) -> None:
        """Call without a pause."""
        while not self.stopping.wait(PAUSE):
            try:
                for bundle in self._installation.ca_bundles():
                    connect(self._installation, bundle)
                assert enforcement_in(self._installation.plane, self._namespace) == "enforced"
            except (AssertionError, OSError) as failure:
                self._errors.append(failure)
            self._rounds += 1


def connect(installation: Installation, bundle: bytes) -> None:
    """Connect to the Service as an API server that trusts `bundle`; OSError if that fails."""
    assert bundle, "a webhook has no caBundle"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=bundle.decode())
    host = f"{installation.release}.{installation.namespace}.svc"
    with (
        socket.create_connection((installation.address, 443), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass
