"""Measure what the webhook costs a cluster: dry runs of creations through a real API server.

It compares, in turn and in several short runs, of which the best one counts:

- no webhook;
- the baseline (`baseline.py`) as mutating and validating webhook, with a patch that fits;
- gpuward as mutating and validating webhook;
- the policies that `gpuward export vap map` writes, which the API server evaluates itself;
- both.

All processes share all CPUs. Needs wrk and the control plane of the tests (docs/testing.md).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.admission.load import Client, Load
from benchmarks.admission.reviews import GPU, encoded, gpu_pod, large_gpu_pod, unrelated_pod
from benchmarks.admission.servers import ServerProcess, baseline_server, gpuward_server
from policies.loading import default_policy
from policies.policy import Policy
from rules.finding import Action
from tests.testkit.admission.in_process import Exports
from tests.testkit.admission.registered_webhook import by_url, create, registered
from tests.testkit.admission.server_process import folder_of
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from webhook.in_process.fixes import fix_objects
from webhook.in_process.objects import ExportOptions, policy_objects
from webhook.registration import RegistrationOptions


class AdmissionSetup(NamedTuple):
    """A namespace with one kind of admission control, and the webhook server, if there is one."""

    name: str
    namespace: str
    server: ServerProcess | None


def creators(plane: ControlPlane, number: int) -> list[str]:
    """Create ServiceAccounts with all permissions, and return their tokens."""
    namespace = plane.namespace()
    accounts = [{"name": f"creator-{n}", "namespace": namespace} for n in range(number)]
    for account in accounts:
        service_account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
        plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", service_account)
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "creators"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", **account} for account in accounts],
    }
    plane.create(f"/apis/{group}/v1/clusterrolebindings", binding)
    return [plane.token(account["name"], namespace) for account in accounts]


@contextmanager
def admission_setups(
    plane: ControlPlane,
    exports: Exports,
    servers: list[ServerProcess],
    manifest: Any,
    policy: Policy | None = None,
) -> Iterator[list[AdmissionSetup]]:
    """Yield a setup without a webhook, one for each of `servers`, and two with exported policies.

    These are of `policy`, or of the default one. The last of `servers` acts beside them, too. Each
    setup must admit `manifest`.
    """
    policy = policy or default_policy()
    with ExitStack() as stack:
        setups = [AdmissionSetup("no webhook", plane.namespace(), None)]

        def register(server: ServerProcess, name: str, namespace: str) -> None:
            config = by_url(f"https://{server.address}", plane.authority.bundle)
            options = RegistrationOptions(default=Action.DENY)
            stack.enter_context(registered(plane, config, options, name=name, only=namespace))
            eventually(lambda: _is_called(plane, namespace, manifest), what=name)
            setups.append(AdmissionSetup(name, namespace, server))

        for server in servers:
            register(server, server.name, plane.namespace())
        for name in ("policies", "both"):
            namespace = exports.add(policy, ExportOptions(), policy_objects, fix_objects)
            stack.callback(exports.remove, namespace)
            exports.wait(namespace)
            if name == "both":
                register(servers[-1], name, namespace)
            else:
                setups.append(AdmissionSetup(name, namespace, None))
        yield setups


def _is_called(plane: ControlPlane, namespace: str, manifest: Any) -> bool:
    """Return whether the API server calls both paths of the webhook for a pod."""
    before = webhook_calls(plane)
    create(plane, namespace, manifest, dry_run=True)
    return webhook_calls(plane) - before >= len(("mutate", "validate"))


def webhook_calls(plane: ControlPlane) -> float:
    """Return how many calls of webhooks the API server has made so far."""
    samples = plane.metrics("apiserver_admission_webhook_").get(
        "apiserver_admission_webhook_request_total", []
    )
    return sum(value for _, value in samples)


TICKS = os.sysconf("SC_CLK_TCK")


class Run(NamedTuple):
    """One short run; `cpu` and `webhook` are milliseconds of CPU time for each creation.

    `cpu` is the time of the API server and the webhook, `webhook` that of the webhook alone.
    """

    load: Load
    cpu: float
    webhook: float


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
        exports = Exports(plane)
        pair = plane.authority.issue("webhook", hosts=["127.0.0.1", "localhost"])
        certificate = folder_of(pair, folder / "tls")
        with gpuward_server(folder, max(cores), "quick", certificate) as server:
            pods = {"4 KB": gpu_pod(), "30 KB": large_gpu_pod(), "unrelated": unrelated_pod()}
            for title, pod in pods.items():
                manifest = acceptable(pod)
                patch = server.send_review("/mutate/deny", encoded(manifest)).get("patch", "")
                patches = {"/mutate/deny": patch, "/validate/deny": ""}
                with (
                    baseline_server(folder, max(cores), "quick", certificate, patches) as baseline,
                    admission_setups(plane, exports, [baseline, server], manifest) as setups,
                ):
                    print(f"\n{title}, {options.connections} connections")
                    _measure(client, plane, setups, json.dumps(manifest).encode(), options)
    return 0


def parse_options(description: str | None) -> argparse.Namespace:
    """Return the options on the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument(
        "--rounds", type=int, default=5, help="number of short runs for each figure"
    )
    parser.add_argument("--seconds", type=int, default=2, help="length of one short run")
    return parser.parse_args()


def acceptable(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod as a user would write it, so that it is valid and admitted as it is.

    It has limits, and no variable that policies refuse because they cannot remove it.
    """
    for each in pod["spec"]["containers"]:
        each["env"] = [e for e in each["env"] if e["name"] != "NVIDIA_VISIBLE_DEVICES"]
        if GPU in each["resources"]["requests"]:
            each["resources"]["limits"][GPU] = each["resources"]["requests"][GPU]
        each["volumeMounts"].pop()
    pod["spec"]["volumes"].pop()
    pod["spec"] |= {"serviceAccountName": "default", "serviceAccount": "default"}
    metadata = {key: pod["metadata"][key] for key in ("generateName", "labels", "annotations")}
    return {**pod, "metadata": metadata}


def _measure(
    client: Client,
    plane: ControlPlane,
    setups: list[AdmissionSetup],
    body: bytes,
    options: argparse.Namespace,
) -> None:
    runs = run_in_turns(client, plane, setups, body, options)
    print(f"{'':<14}{'creations/s':>12}{'of none':>9}{'of baseline':>13}{'(runs)':>14}", end="")
    print(f"{'p50 ms':>8}{'p99 ms':>8}{'CPU ms':>8}{'of baseline':>13}{'webhook ms':>12}")
    for name, setup_runs in runs.items():
        _show(name, setup_runs, runs["no webhook"], runs["baseline"])


def run_in_turns(
    client: Client,
    plane: ControlPlane,
    setups: list[AdmissionSetup],
    body: bytes,
    options: argparse.Namespace,
) -> dict[str, list[Run]]:
    """Return several short runs of each setup, by its name. Setups take turns."""
    runs: dict[str, list[Run]] = {setup.name: [] for setup in setups}
    for _ in range(options.rounds):
        for setup in setups:
            runs[setup.name].append(_run(client, plane, setup, body, options))
    return runs


def _run(
    client: Client,
    plane: ControlPlane,
    setup: AdmissionSetup,
    body: bytes,
    options: argparse.Namespace,
) -> Run:
    path = f"/api/v1/namespaces/{setup.namespace}/pods?dryRun=All"
    api_server = plane.process_ids["kube-apiserver"]
    before = _ticks(api_server), setup.server.cpu_seconds() if setup.server else 0.0
    load = client.closed(plane.url + path, body, options.connections, options.seconds)
    webhook = (setup.server.cpu_seconds() - before[1]) if setup.server else 0.0
    cpu_seconds = (_ticks(api_server) - before[0]) / TICKS + webhook
    if setup.server:
        setup.server.forget_log()
    number = max(load.requests, 1)
    return Run(load, cpu_seconds / number * 1000, webhook / number * 1000)


def _ticks(process: int) -> int:
    """Return the CPU time of a process in clock ticks, including threads that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _show(name: str, runs: list[Run], none: list[Run], baselines: list[Run]) -> None:
    best = max((run.load for run in runs), key=lambda load: load.rate)
    of_none, of_baseline = (
        best.rate / max(run.load.rate for run in other) for other in (none, baselines)
    )
    shares = sorted(a.load.rate / max(b.load.rate, 1) for a, b in zip(runs, baselines, strict=True))
    cpu, baseline_cpu = (min(run.cpu for run in group) for group in (runs, baselines))
    print(
        f"{name:<14}{best.rate:>12,.0f}{of_none:>9.0%}{of_baseline:>13.0%}"
        f"{f'({shares[0]:.0%}-{shares[-1]:.0%})':>14}{best.p50:>8.1f}{best.p99:>8.1f}"
        f"{cpu:>8.2f}{baseline_cpu / cpu:>13.0%}{min(run.webhook for run in runs):>12.3f}",
        flush=True,
    )
