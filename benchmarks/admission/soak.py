"""Test that the server's memory stays flat under minutes of mixed requests over TLS.

The requests are about pods that are fixed, refused, without GPUs and large, of ever new templates,
and some are malformed. The certificate and the policy change after each round. At the end come the
memory, descriptors and threads of the last tenth of the rounds, as multiples of the second tenth:
in the first one caches fill. The exit status is 1 if one of them grew by more than a tenth, if the
server never took up a new certificate, or if the rounds are too few to compare.
"""

from __future__ import annotations

import argparse
import itertools
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.admission.load import ALL_NEW, Client
from benchmarks.admission.reviews import encoded, gpu_pod, large_gpu_pod, unrelated_pod
from benchmarks.admission.servers import ServerProcess, create_certificate, gpuward_server
from certs.authority import new_authority, sign_leaf
from certs.validity import utc_now

ALLOWED_GROWTH = 1.1
ROUND_SECONDS = 1  # for each kind of request
# With fewer rounds the second tenth and the last one are not apart.
MIN_ROUNDS = 4
MALFORMED = (b"", b"[]", b"\xff" * 100, b"[" * 100_000, b'{"request": 1}')
POLICIES = ("", "rules:\n  visible-devices-env: {action: warn}\n", "rules: [half written\n")
NAMES = ("localhost", "127.0.0.1")


class ResourceUsage(NamedTuple):
    """The resources that the server's process uses."""

    kilobytes: int
    descriptors: int
    threads: int


def main() -> int:
    """Run the soak test, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificate, policy = create_certificate(folder), folder / "policy.yaml"
        _replace(policy, _policy(POLICIES[0]))
        client = Client(folder, {cores[-1]})
        arguments = ("--policy", str(policy))
        with gpuward_server(folder, cores[0], "quick", certificate, *arguments) as server:
            samples = _samples(server, client, certificate, policy, options.seconds)
    factors = growth(samples)
    print(f"growth after the first tenth: {factors}")
    is_flat = max(factors.values()) <= ALLOWED_GROWTH
    print("flat" if is_flat else "NOT FLAT")
    return 0 if is_flat else 1


def _samples(
    server: ServerProcess, client: Client, certificate: Path, policy: Path, seconds: float
) -> list[ResourceUsage]:
    """Send rounds of requests for so long, and return the usage after each."""
    pods: list[dict[str, Any]] = [gpu_pod(), large_gpu_pod(), unrelated_pod(), unrelated_pod(9_000)]
    samples: list[ResourceUsage] = []
    served: set[str] = set()
    host, port = server.address.rsplit(":", 1)
    policies = itertools.cycle(POLICIES)
    started = time.monotonic()
    print(f"{'seconds':>8} {'MB':>7} {'descriptors':>12} {'threads':>8}")
    while (elapsed := time.monotonic() - started) < seconds:
        for pod, path in itertools.product(pods, ("mutate/deny", "validate/warn")):
            url = f"https://{server.address}/{path}"
            client.closed(url, encoded(pod), connections=4, seconds=ROUND_SECONDS, mix=ALL_NEW)
        if wrong := [text[:20] for text in MALFORMED if server.status("/mutate/deny", text) != 400]:  # noqa: PLR2004
            sys.exit(f"answered otherwise than with 400: {wrong}")
        served.add(ssl.get_server_certificate((host, int(port)), timeout=10))
        leaf = sign_leaf(new_authority(NAMES, utc_now()), NAMES, utc_now())
        _replace(certificate / "tls.key", leaf.key_pem)
        _replace(certificate / "tls.crt", leaf.certificate_pem)
        _replace(policy, _policy(next(policies)))
        server.forget_log()
        samples.append(now := _usage(server.process_id))
        figures = f"{now.kilobytes / 1024:7.1f} {now.descriptors:12} {now.threads:8}"
        print(f"{elapsed:8.0f} {figures}", flush=True)
    if len(samples) < MIN_ROUNDS:
        sys.exit(f"{len(samples)} rounds are too few to compare: give more --seconds")
    if len(served) == 1:
        sys.exit("the server served its first certificate to the end")
    print(f"certificates served: {len(served)} in {len(samples)} rounds")
    return samples


def growth(samples: Sequence[ResourceUsage]) -> dict[str, float]:
    """Each resource in the last tenth of the samples, as a multiple of the second tenth.

    It compares medians, because large bodies use memory for a short time.
    """
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth], samples[-tenth:]
    return {
        name: round(median(s[n] for s in late) / median(s[n] for s in early), 3)
        for n, name in enumerate(ResourceUsage._fields)
    }


def _usage(process: int) -> ResourceUsage:
    folder = Path(f"/proc/{process}")
    lines = (folder / "status").read_text(encoding="utf-8").splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    kilobytes = int(status["VmRSS"].split()[0])
    return ResourceUsage(kilobytes, len(os.listdir(folder / "fd")), int(status["Threads"]))


def _policy(rest: str) -> bytes:
    return f"apiVersion: gpuward.io/v1\nkind: Policy\n{rest}".encode()


def _replace(file: Path, content: bytes) -> None:
    new = file.with_suffix(".new")
    new.write_bytes(content)
    new.rename(file)
