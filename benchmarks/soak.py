"""Whether the server's memory stays flat: minutes of mixed calls over TLS, and what it holds.

    python -m benchmarks.soak [--seconds 600] [--threads 2]

Calls that are fixed, refused, none of its business, malformed, large; connections that come
and go; meanwhile another certificate and another policy every few seconds. Prints at
intervals what the process holds, then by how much it grew after the first tenth, in which
caches fill. Exit status 1 if memory, descriptors or threads grew by more than a tenth, or if
an answer was not the one expected.
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
from certs.clock import utc_now
from certs.pki.authority import new_authority, sign_leaf
from certs.pki.keypairs import KeyPair

ROOT = Path(__file__).parents[1]
NAMES = ("localhost", "127.0.0.1")
CHANGES_EVERY = 5.0  # seconds; the server looks every two
SAMPLES = 60
ALLOWED_GROWTH = 1.1
POLICIES = ("", "rules:\n  visible-devices-env: {action: warn}\n", "rules: [half written\n")


class Holding(NamedTuple):
    """What the server's process holds."""

    kilobytes: int
    descriptors: int
    threads: int


class Server:
    """`gpuward serve` in a folder of its own."""

    def __init__(self, folder: Path, authority: KeyPair) -> None:
        self._folder = folder
        self._authority = authority
        self._policies = itertools.cycle(POLICIES)
        self.change()
        command = [sys.executable, "-m", "gpuward", "serve", "--listen", "127.0.0.1:0"]
        command += ["--metrics-listen", "127.0.0.1:0", "--certificate", str(folder)]
        command += ["--policy", str(folder / "policy.yaml")]
        reading, writing = os.pipe()
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=writing)
        os.close(writing)
        # Its log is taken off it, and read by nobody.
        self._log = os.fdopen(reading)
        lines = (json.loads(line) for line in self._log)
        self.address: str = next(x["address"] for x in lines if x["event"] == "serving")
        threading.Thread(target=self._read, daemon=True).start()

    def change(self) -> None:
        """Another certificate and another policy, each at one stroke as far as it can be."""
        leaf = sign_leaf(self._authority, NAMES, utc_now())
        policy = f"apiVersion: gpuward.io/v1\nkind: Policy\n{next(self._policies)}".encode()
        files = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem, "policy.yaml": policy}
        for name, content in files.items():
            (self._folder / "new").write_bytes(content)
            (self._folder / "new").rename(self._folder / name)

    def holding(self) -> Holding:
        """What it holds now."""
        home = Path(f"/proc/{self.process.pid}")
        lines = (home / "status").read_text(encoding="utf-8").splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        kilobytes = int(status["VmRSS"].split()[0])
        descriptors = len(os.listdir(home / "fd"))
        return Holding(kilobytes, descriptors, int(status["Threads"]))

    def _read(self) -> None:
        for _line in self._log:
            pass

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def watch(server: Server, clients: Clients, seconds: float) -> list[Holding]:
    """What it held at intervals, while certificates and policies change."""
    started = changed = time.monotonic()
    held = [server.holding()]
    print(f"{'seconds':>8} {'answers':>9} {'MB':>7} {'descriptors':>12} {'threads':>8}")
    while (passed := time.monotonic() - started) < seconds:
        time.sleep(0.2)
        if time.monotonic() - changed > CHANGES_EVERY:
            changed = time.monotonic()
            server.change()
        if passed >= seconds / SAMPLES * len(held):
            held.append(now := server.holding())
            numbers = f"{now.kilobytes / 1024:7.1f} {now.descriptors:12} {now.threads:8}"
            print(f"{passed:8.0f} {clients.answers.total():9} {numbers}", flush=True)
    return held


def growth(held: Sequence[Holding]) -> dict[str, float]:
    """The last tenth as a multiple of the second: the medians, for large bodies come and go."""
    tenth = max(1, len(held) // 10)
    early, late = held[tenth : 2 * tenth], held[-tenth:]
    return {
        name: round(median(h[n] for h in late) / median(h[n] for h in early), 3)
        for n, name in enumerate(Holding._fields)
    }


def main() -> int:
    """Run from the command line; see the module's text."""
    parser = argparse.ArgumentParser(description="Whether the server's memory stays flat.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    authority = new_authority(NAMES, utc_now())
    tls = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), authority)
        clients = Clients(server.address, tls, options.threads)
        try:
            held = watch(server, clients, options.seconds)
        finally:
            clients.stop()
            server.stop()
    grown = growth(held)
    wrong = {key: n for key, n in clients.answers.items() if str(key[0]) != key[1]}
    print(f"\nanswers, expected and given: {dict(clients.answers)}")
    print(f"growth after the first tenth: {grown}")
    flat = max(grown.values()) <= ALLOWED_GROWTH
    print("flat" if flat else "NOT FLAT", *(["WRONG ANSWERS:", wrong] if wrong else []))
    return 0 if flat and not wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())
