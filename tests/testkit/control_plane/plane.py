"""A real Kubernetes control plane on the loopback interface, for tests."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.build import programs as built_programs
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.servers import FEWER_COLLECTIONS, Servers


class ControlPlane(Cluster):
    """`with ControlPlane() as plane:` runs a control plane until the block is left.

    `programs` are those of the newest tested release by default. All files are in `folder`, by
    default a temporary one; `NAME.log` has the output of the program NAME. Without
    `controllers` there are only etcd and the API server: no pod is scheduled, and no pods are
    created from a Deployment; `without_controllers` are single ones of kube-controller-manager that
    do not run. `api_server_flags` are added to the flags of the API server; `feature_gates` are
    switched on in all programs of Kubernetes.
    `go_settings` are added to the environment of all programs, which are written in Go.
    `services` are the first three numbers of the Services' addresses, if these are not to be
    loopback addresses.
    """

    def __init__(
        self,
        programs: Programs | None = None,
        *,
        folder: Path | None = None,
        controllers: bool = True,
        without_controllers: Sequence[str] = (),
        api_server_flags: Sequence[str] = (),
        feature_gates: Sequence[str] = (),
        services: str = "",
        go_settings: Mapping[str, str] = FEWER_COLLECTIONS,
    ) -> None:
        super().__init__(programs or built_programs())
        self._folder = folder
        self._controllers = controllers
        self._without_controllers = without_controllers
        self._flags, self._feature_gates = api_server_flags, feature_gates
        self._services = services
        self._go_settings = go_settings
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = self._folder or Path(stack.enter_context(_temporary_folder()))
            self._servers = Servers(
                folder,
                self.programs,
                controllers=self._controllers,
                without_controllers=self._without_controllers,
                api_server_flags=self._flags,
                feature_gates=self._feature_gates,
                services=self._services,
                go_settings=self._go_settings,
            )
            stack.callback(self._servers.stop)
            self._servers.start()
            self._wait_for_account("default")
            # All programs started: they are stopped by `__exit__` and no longer by this block.
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def process_ids(self) -> dict[str, int]:
        """The process ids of the programs by their names."""
        return self._servers.processes.ids

    def log(self, name: str) -> str:
        """The output of the program called `name`."""
        return self._servers.processes.log(name).read_text(encoding="utf-8", errors="replace")

    def restart_api_server(self) -> None:
        """End the API server, start it again, and wait until it is ready."""
        self._servers.restart_api_server()


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gpuward-", ignore_cleanup_errors=True)
