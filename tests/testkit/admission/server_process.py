"""Runs `gpuward serve` as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.testkit.control_plane.pki import KeyPairFiles
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.paths import ROOT

HEAD = "apiVersion: gpuward.io/v1\nkind: Policy\n"
ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}


class Server:
    """A running `gpuward serve`, on a free port unless `listen` names one.

    `certificate` is the folder with tls.crt and tls.key; `policy` has the keys of a policy file.
    """

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        certificate: Path,
        policy: str = "",
        *,
        name: str = "gpuward",
        listen: str = "127.0.0.1:0",
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.policy_file = folder / f"{name}.yaml"
        self.policy_file.write_text(HEAD + policy, encoding="utf-8")
        self._processes = processes
        command = [sys.executable, "-m", "gpuward", "serve", "--listen", listen]
        command += ["--metrics-listen", "127.0.0.1:0", "--certificate", str(certificate)]
        command += ["--policy", str(self.policy_file), *arguments]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        processes.start(name, command, environment)
        started = eventually(self._started, what=f"{name} is serving")
        assert started is not None
        self.address: str = started["address"]
        self.metrics_address: str = started["metrics_address"]
        eventually(lambda: self.get("/readyz")[0] == 200, what=f"{name} is ready")

    @property
    def url(self) -> str:
        """The address for requests of the API server."""
        return f"https://{self.address}"

    @property
    def process_id(self) -> int:
        """The id of its process."""
        return self._processes.ids[self.name]

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log, without one that is being written."""
        text = self._processes.log(self.name).read_text(encoding="utf-8", errors="replace")
        whole = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of `path` on the metrics port: health, readiness or metrics."""
        url = f"http://{self.metrics_address}{path}"
        done = subprocess.run(
            ["curl", "--silent", "--write-out", "\n%{http_code}", url],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of `name` that carry `labels`; fails for an unknown metric."""
        families = list(text_string_to_metric_families(self.get("/metrics")[1]))
        # Counters exist before anything is counted, so an unknown name is a misspelt one.
        known = {
            family.name + end for family in families for end in ENDINGS.get(family.type, ("",))
        }
        assert name in known, f"{name} is none of {sorted(known)}"
        samples = [sample for family in families for sample in family.samples]
        return sum(
            sample.value
            for sample in samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def stop(self) -> None:
        """Send SIGTERM and wait until the process has ended."""
        self._processes.end(self.name, seconds=60)

    def _started(self) -> dict[str, Any] | None:
        self._processes.check(self.name)
        return next((line for line in self.log() if line.get("event") == "serving"), None)


def folder_of(pair: KeyPairFiles, folder: Path) -> Path:
    """Write `pair` into `folder` under the names that a Secret has, and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tls.crt").write_bytes(pair.certificate.read_bytes())
    (folder / "tls.key").write_bytes(pair.key.read_bytes())
    return folder
