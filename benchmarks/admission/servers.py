"""Start servers as processes, each on one CPU core or on all, and measure their CPU and memory."""

from __future__ import annotations

import datetime
import http.client
import json
import ssl
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from certs.authority import new_authority, sign_leaf

LAUNCH = str(Path(__file__).with_name("launch.py"))
START_SECONDS = 30
Variant = Literal["plain", "quick"]


class ServerProcess:
    """A server process; `arguments` are a module and its arguments.

    `core` is its CPU core; without one it runs on all. Inside its `with` block the server runs and
    `address` is its host and port.
    """

    def __init__(
        self, folder: Path, name: str, core: int | None, variant: Variant, arguments: list[str]
    ) -> None:
        self.name = name
        self._log = folder / f"{name}-{variant}.log"
        command = [
            sys.executable,
            LAUNCH,
            "all" if core is None else str(core),
            variant,
            *arguments,
        ]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_SECONDS
        while not (line := self._serving()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                sys.exit(f"{self.name} did not start:\n{self._log.read_text(errors='replace')}")
            time.sleep(0.05)
        self.address: str = line["address"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def process_id(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Return the CPU time in seconds that the server has used so far."""
        tasks = Path(f"/proc/{self.process_id}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def resident_megabytes(self) -> float:
        """Return the highest resident memory of the server so far, in MB."""
        status = Path(f"/proc/{self.process_id}/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1000

    def forget_log(self) -> None:
        """Empty the log file, which grows under load."""
        with self._log.open("r+b") as log:
            log.truncate()

    def send_review(self, path: str, body: bytes) -> Any:
        """Send one review to `path`, and return the `response` of the answer."""
        return json.loads(self._post(path, body)[1])["response"]

    def status(self, path: str, body: bytes) -> int:
        """Send `body` to `path`, and return the HTTP status of the answer."""
        return self._post(path, body)[0]

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        # The server is a child process on the loopback interface, so there is nothing to verify.
        context = ssl._create_unverified_context()  # noqa: S323, SLF001
        connection = http.client.HTTPSConnection(self.address, context=context, timeout=30)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content

    def _serving(self) -> Any:
        lines = self._log.read_text(errors="replace").splitlines()
        events = (json.loads(line) for line in lines if line.startswith("{"))
        return next((event for event in events if event.get("event") == "serving"), None)


def gpuward_server(
    folder: Path,
    core: int | None,
    variant: Variant,
    certificate: Path,
    *options: str,
    name: str = "gpuward",
    host: str = "127.0.0.1",
) -> ServerProcess:
    """Return gpuward's server at `host`, with its default settings apart from `options`."""
    listen = ["--listen", f"{host}:0", "--metrics-listen", "127.0.0.1:0"]
    arguments = ["gpuward", "serve", *listen, "--certificate", str(certificate), *options]
    return ServerProcess(folder, name, core, variant, arguments)


def baseline_server(
    folder: Path, core: int | None, variant: Variant, certificate: Path, patches: dict[str, str]
) -> ServerProcess:
    """Return the server that answers each path with the constant patch in `patches`."""
    file = folder / "patches.json"
    file.write_text(json.dumps(patches), encoding="ascii")
    return ServerProcess(
        folder,
        "baseline",
        core,
        variant,
        ["benchmarks.admission.baseline", str(certificate), str(file)],
    )


def create_certificate(folder: Path) -> Path:
    """Create a certificate for this machine in a new folder in `folder`, and return its path."""
    now, days = datetime.datetime.now(tz=datetime.UTC), datetime.timedelta(days=7)
    names = ["localhost", "127.0.0.1"]
    authority = new_authority(names, now, days)
    leaf = sign_leaf(authority, names, now, days)
    directory = folder / "certificate"
    directory.mkdir()
    (directory / "ca.crt").write_bytes(authority.certificate_pem)
    (directory / "tls.crt").write_bytes(leaf.certificate_pem)
    (directory / "tls.key").write_bytes(leaf.key_pem)
    return directory
