"""A caller that sends requests to the webhook without a pause and records every failure."""

from __future__ import annotations

import socket
import ssl
import threading
from types import TracebackType
from typing import Self

from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.installation import Installation
from tests.testkit.control_plane.processes import eventually

PAUSE = 0.05


class ContinuousCaller:
    """Check until the end of the block that the webhook refuses and fixes pods in `namespace`.

    An API server reuses its connections, so it does not notice a new certificate that it would
    not trust. Each round therefore also opens a new connection that trusts the published bundle.
    The end of the block raises an AssertionError if a round failed, unless the block itself
    raised.
    """

    def __init__(self, installation: Installation, namespace: str) -> None:
        self._installed = installation
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._call_repeatedly, name="continuous-caller")
        self._errors: list[Exception] = []
        self._rounds = 0

    def wait_for_calls(self, rounds: int = 5) -> None:
        """Wait for `rounds` more rounds, and fail if a round failed."""
        goal = self._rounds + rounds
        eventually(lambda: self._errors or self._rounds >= goal, what="calls go on")
        assert self._errors == []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None:
            assert self._errors == []

    def _call_repeatedly(self) -> None:
        while not self._stop.wait(PAUSE):
            try:
                for bundle in self._installed.ca_bundles():
                    connect(self._installed, bundle)
                assert enforcement_in(self._installed.plane, self._namespace) == "enforced"
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
