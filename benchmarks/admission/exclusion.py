"""Measure what `gpu-node-without-request` costs a pod that asks for no GPU, at its creation.

It makes dry runs through a real API server, in turn and in several short runs, of which the best
one counts:

- no webhook;
- gpuward as mutating and validating webhook, to which API servers send every pod;
- the policies that `gpuward export vap map` writes;
- both.

Each but the first adds the affinity that keeps the pod off GPU nodes. All processes share all CPUs.
Needs wrk and the control plane of the tests (docs/testing.md).
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from benchmarks.admission.api_server import (
    Run,
    acceptable,
    admission_setups,
    creators,
    parse_options,
    run_in_turns,
)
from benchmarks.admission.load import Client
from benchmarks.admission.reviews import unrelated_pod
from benchmarks.admission.servers import gpuward_server
from policies.loading import load_policy
from tests.testkit.admission.in_process import Exports
from tests.testkit.admission.server_process import folder_of
from tests.testkit.control_plane.plane import ControlPlane

POLICY = """\
apiVersion: gpuward.io/v1
kind: Policy
profiles: [nvidia]
rules:
  gpu-node-without-request: {action: deny}
"""


def main() -> int:
    """Run the measurements, print them, and return 0."""
    options = parse_options(__doc__)
    cores = os.sched_getaffinity(0)
    with (
        tempfile.TemporaryDirectory() as name,
        ControlPlane(controllers=False, go_settings={}) as plane,
    ):
        folder = Path(name)
        client = Client(folder, cores, *creators(plane, 1))
        pair = plane.authority.issue("webhook", hosts=["127.0.0.1", "localhost"])
        certificate = folder_of(pair, folder / "tls")
        file = folder / "gpuward.yaml"
        file.write_text(POLICY, encoding="utf-8")
        policy, manifest = load_policy(POLICY, file.name), acceptable(unrelated_pod())
        settings = ("--policy", str(file))
        with (
            gpuward_server(folder, max(cores), "quick", certificate, *settings) as server,
            admission_setups(plane, Exports(plane), [server], manifest, policy) as setups,
        ):
            runs = run_in_turns(client, plane, setups, json.dumps(manifest).encode(), options)
    _show(runs)
    return 0


def _show(runs: dict[str, list[Run]]) -> None:
    print(f"{'':<14}{'creations/s':>12}{'of none':>9}{'p50 ms':>8}{'CPU ms':>8}{'of none':>9}")
    none = runs["no webhook"]
    for name, own in runs.items():
        best = max((run.load for run in own), key=lambda load: load.rate)
        share = best.rate / max(run.load.rate for run in none)
        cpu, cpu_of_none = (min(run.cpu for run in group) for group in (own, none))
        print(
            f"{name:<14}{best.rate:>12,.0f}{share:>9.0%}{best.p50:>8.1f}{cpu:>8.2f}"
            f"{cpu / cpu_of_none:>8.1f}x",
            flush=True,
        )
