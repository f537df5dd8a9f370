"""Somebody who calls the webhook without a pause, and minds every call that fails."""

from __future__ import annotations

import socket
import ssl
import threading
from types import TracebackType
from typing import Self

from tests.testkit.admission.enforcement import treatment
from tests.testkit.chart.installation import Installed
from tests.testkit.control_plane.processes import eventually

PAUSE = 0.05


class Unbroken:
    """Until the block is left, pods in `namespace` are to be refused and fixed, each of them.

    API servers keep connections, by which they do not notice a certificate that they would not
    trust. So each time somebody else looks too, who connects anew and trusts what is published.
    Left without an error of its own, the block fails if anything else was seen.
    """

    def __init__(self, installed: Installed, namespace: str) -> None:
        self._installed = installed
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="unbroken")
        self._faults: list[Exception] = []
        self._times = 0

    def goes_on(self, times: int = 5) -> None:
        """Wait until it has been looked so many times more; fails if anything was seen."""
        wanted = self._times + times
        eventually(lambda: self._faults or self._times >= wanted, what="calls go on")
        assert self._faults == []

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
            assert self._faults == []

    def _look(self) -> None:
        while not self._stop.wait(PAUSE):
            try:
                for bundle in self._installed.bundles():
                    connect(self._installed, bundle)
                assert treatment(self._installed.plane, self._namespace) == "enforced"
            except (AssertionError, OSError) as fault:
                self._faults.append(fault)
            self._times += 1


def connect(installed: Installed, bundle: bytes) -> None:
    """Call the Service as an API server does that trusts `bundle`; OSError if that fails."""
    assert bundle, "there is an entry without caBundle"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=bundle.decode())
    host = f"{installed.release}.{installed.namespace}.svc"
    with (
        socket.create_connection((installed.address, 443), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass
