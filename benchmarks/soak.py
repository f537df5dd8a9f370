"""Test that the server's memory stays flat under minutes of mixed requests over TLS.

    python -m benchmarks.soak [--seconds 600] [--threads 2]

The requests are about pods that are fixed, refused, without GPUs and large, and some are
malformed. Clients open and close connections. The certificate and the policy change every few
seconds. The program prints the memory, descriptors and threads of the server at intervals. At the
end it prints their growth after the first tenth of the time, in which caches fill. The exit status
is 1 if one of them grew by more than a tenth, or if an answer had an unexpected status.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.soak_calls import Clients
from certs.authority import new_authority, sign_leaf
from certs.clock import utc_now
from certs.keypairs import KeyPair

ROOT = Path(__file__).parents[1]
NAMES = ("localhost", "127.0.0.1")
CHANGES_EVERY = 5.0  # seconds; the server checks its files every two seconds
SAMPLES = 60
ALLOWED_GROWTH = 1.1
POLICIES = ("", "rules:\n  visible-devices-env: {action: warn}\n", "rules: [half written\n")


class ResourceUsage(NamedTuple):
    """The resources that the server's process uses."""

    kilobytes: int
    descriptors: int
    threads: int


class Server:
    """The process of `gpuward serve`, with its certificate and policy in `folder`."""

    def __init__(self, folder: Path, authority: KeyPair) -> None:
        self._folder = folder
        self._authority = authority
        self._policies = itertools.cycle(POLICIES)
        self.change()
        command = [sys.executable, "-m", "gpuward", "serve", "--listen", "127.0.0.1:0"]
        command += ["--metrics-listen", "127.0.0.1:0", "--certificate", str(folder)]
        command += ["--policy", str(folder / "policy.yaml")]
        read_end, write_end = os.pipe()
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=write_end)
        os.close(write_end)
        # Read the log, so that the pipe never fills, and discard it.
        self._log = os.fdopen(read_end)
        lines = (json.loads(line) for line in self._log)
        self.address: str = next(x["address"] for x in lines if x["event"] == "serving")
        threading.Thread(target=self._read, daemon=True).start()

    def change(self) -> None:
        """Write a new certificate and the next policy; each file is replaced atomically."""
        leaf = sign_leaf(self._authority, NAMES, utc_now())
        policy = f"apiVersion: gpuward.io/v1\nkind: Policy\n{next(self._policies)}".encode()
        files = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem, "policy.yaml": policy}
        for name, content in files.items():
            (self._folder / "new").write_bytes(content)
            (self._folder / "new").rename(self._folder / name)

    def usage(self) -> ResourceUsage:
        """Return the resources that the process uses now."""
        process = Path(f"/proc/{self.process.pid}")
        lines = (process / "status").read_text(encoding="utf-8").splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        kilobytes = int(status["VmRSS"].split()[0])
        descriptors = len(os.listdir(process / "fd"))
        return ResourceUsage(kilobytes, descriptors, int(status["Threads"]))

    def _read(self) -> None:
        for _line in self._log:
            pass

    def stop(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()


def watch(server: Server, clients: Clients, seconds: float) -> list[ResourceUsage]:
    """Sample the usage for `seconds`, while certificates and policies change."""
    start = last_change = time.monotonic()
    samples = [server.usage()]
    print(f"{'seconds':>8} {'answers':>9} {'MB':>7} {'descriptors':>12} {'threads':>8}")
    while (elapsed := time.monotonic() - start) < seconds:
        time.sleep(0.2)
        if time.monotonic() - last_change > CHANGES_EVERY:
            last_change = time.monotonic()
            server.change()
        if elapsed >= seconds / SAMPLES * len(samples):
            samples.append(now := server.usage())
            numbers = f"{now.kilobytes / 1024:7.1f} {now.descriptors:12} {now.threads:8}"
            print(f"{elapsed:8.0f} {clients.answers.total():9} {numbers}", flush=True)
    return samples


def growth(samples: Sequence[ResourceUsage]) -> dict[str, float]:
    """Return each resource in the last tenth of the samples as a multiple of the second tenth.

    It compares medians, because large bodies use memory for a short time.
    """
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth], samples[-tenth:]
    return {
        name: round(median(s[n] for s in late) / median(s[n] for s in early), 3)
        for n, name in enumerate(ResourceUsage._fields)
    }


def main() -> int:
    """Run the soak test, and return the exit status."""
    parser = argparse.ArgumentParser(description="Test that the server's memory stays flat.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    authority = new_authority(NAMES, utc_now())
    tls = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), authority)
        clients = Clients(server.address, tls, options.threads)
        try:
            samples = watch(server, clients, options.seconds)
        finally:
            clients.stop()
            server.stop()
    factors = growth(samples)
    wrong = {key: n for key, n in clients.answers.items() if str(key[0]) != key[1]}
    print(f"\nanswers, expected and given: {dict(clients.answers)}")
    print(f"growth after the first tenth: {factors}")
    is_flat = max(factors.values()) <= ALLOWED_GROWTH
    print("flat" if is_flat else "NOT FLAT", *(["WRONG ANSWERS:", wrong] if wrong else []))
    return 0 if is_flat and not wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())
