"""Measure what users wait for who create GPU pods, beside a constant answer and other controllers.

Each configuration takes turns with the constant answer (`baseline.py`), which decodes the review
and knows the patch. Ratios are to the runs of the constant answer before and after, so that they
hold while the machine becomes slower or faster:

- none: no webhook
- gpuward, gpuward-3: one replica and three, in mode deny; of three, API servers choose one a call
- policies: what `gpuward export vap map` writes, which API servers evaluate
- mutating+policies: the mutating webhook, and `gpuward export vap`: one call for each pod
- kyverno, gatekeeper: with the policies of `peers.py`, which are few

Only on demand:

- fixes+validating: `gpuward export map`, and the validating webhook: one call for each pod
- two-sets: one replica is called to mutate, and another to validate
- two-hosts: one replica by two names, for each of which API servers keep 25 idle connections

Clients create a small GPU pod that is admitted and gets a toleration and an affinity. All pods are
replicas of one template, or come from new templates, or ten from each new one. Dry runs end before
etcd; real creations are written, and deleted after the run. All processes share all CPUs.

It takes a quarter of an hour at most, and prints tables in Markdown. Needs the control plane of the
tests, and for Kyverno and Gatekeeper their programs, which are built once (docs/testing.md).
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from benchmarks.admission.api_server import acceptable, creators, webhook_calls
from benchmarks.admission.clients import CREATED, Clients, Latencies
from benchmarks.admission.load import ALL_NEW, NEW_IN_TEN, REPLICAS, Mix
from benchmarks.admission.peers import IGNORED_BY_GATEKEEPER, PEERS, Peer, running_peer
from benchmarks.admission.reviews import encoded, gpu_pod
from benchmarks.admission.servers import ServerProcess, baseline_server, gpuward_server
from policies.loading import default_policy
from rules.finding import Action
from tests.testkit.admission.in_process import Exports
from tests.testkit.admission.registered_webhook import by_service, by_url, create, registered
from tests.testkit.admission.server_process import folder_of
from tests.testkit.control_plane import objects
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import ProcessError, eventually
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.match_conditions.chart_condition import chart_condition
from webhook.in_process.fixes import fix_objects
from webhook.in_process.objects import ExportOptions, policy_objects
from webhook.registration import RegistrationOptions

CONSTANT = "constant"
BY_DEFAULT = ("none", "gpuward", "gpuward-3", "policies", "mutating+policies")
OF_GPUWARD = (*BY_DEFAULT, "fixes+validating", "two-sets", "two-hosts")
OF_PEERS = tuple(peer.name for peer in PEERS)
NAMES = (CONSTANT, *OF_GPUWARD, *OF_PEERS)
REPLICA_COUNT = 3
# Users that create pods. API servers have queues for each, and refuse what does not fit.
ACCOUNTS = 10
MANY_CLIENTS = 200
MIXES = {"replicas": REPLICAS, "new": ALL_NEW, "1-in-10": NEW_IN_TEN}
Write = Literal["dry", "real"]
MAX_BUSY = 0.3  # share of a processor above which the clients may delay what they measure
WEBHOOK_KINDS = ("mutating", "validating")


class Configuration(NamedTuple):
    """A namespace with one kind of admission control, and its webhook servers.

    `calls` is the number of webhooks that an API server calls for a pod.
    """

    name: str
    namespace: str
    calls: int = 0
    servers: Sequence[ServerProcess] = ()


class Cell(NamedTuple):
    """A way of writing, a kind of pods and a number of clients, under which all are measured."""

    write: Write
    pods: str
    clients: int

    def __str__(self) -> str:
        """The cell in words."""
        return f"{self.write}, {self.pods}, {self.clients} clients"


class Pair(NamedTuple):
    """A run of a configuration, and those of the constant answer before and after it."""

    own: Latencies
    constant: tuple[Latencies, Latencies]

    def ratio(self, figure: Callable[[Latencies], float]) -> float:
        """The figure of the run, divided by that of the constant answer."""
        return figure(self.own) / statistics.mean(map(figure, self.constant))


Results = dict[Cell, dict[str, list[Pair]]]


def main() -> int:
    """Run the measurements, print them, and return 0."""
    options = _options()
    for peer in PEERS:
        if peer.name in options.only:
            with suppress(BuildError):  # `measure_peer` says so
                peer.build()
    benchmark = Benchmark(options)
    try:
        if set(OF_GPUWARD) & set(options.only):
            benchmark.measure_gpuward()
        for peer in PEERS:
            if peer.name in options.only and not benchmark.is_over:
                benchmark.measure_peer(peer)
    finally:  # also of a measurement that is interrupted
        benchmark.show()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def names(text: str) -> list[str]:
        return text.split(",")

    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",") if each]

    parser.add_argument(
        *("--only", "--configurations"),
        type=names,
        default=[*BY_DEFAULT, *OF_PEERS],
        metavar="NAME,…",
        help=f"some of {', '.join(NAMES)}; the constant answer is always measured",
    )
    parser.add_argument("--clients", type=numbers, default=[10, 50, 500], metavar="N,…")
    parser.add_argument(
        "--real-clients",
        type=numbers,
        default=[50],
        metavar="N,…",
        help="numbers of clients whose creations are real; by default 50, '' for none",
    )
    parser.add_argument(
        "--pods",
        type=names,
        default=["replicas", "new"],
        metavar="KIND,…",
        help=f"some of {', '.join(MIXES)}",
    )
    parser.add_argument("--rounds", type=int, default=1, help="runs of each figure")
    parser.add_argument(
        "--seconds", type=float, default=2, help="length of one run; many clients run twice as long"
    )
    parser.add_argument(
        "--minutes", type=float, default=15, help="after which no further run begins"
    )
    options = parser.parse_args()
    for chosen, known in ((options.only, NAMES), (options.pods, MIXES)):
        if unknown := set(chosen) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return options


class Benchmark:
    """Runs the clients against one configuration after another, and keeps the results."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._ends = time.monotonic() + options.minutes * 60
        self._manifest = acceptable(gpu_pod())
        self._results: Results = {}
        self._calls: dict[str, int] = {}
        self._notes: list[str] = []

    @property
    def is_over(self) -> bool:
        """Return whether the time is over."""
        return bool(time.monotonic() > self._ends)

    @property
    def _cells(self) -> list[Cell]:
        chosen: list[tuple[Write, int]] = [("dry", number) for number in self._options.clients]
        chosen += [("real", number) for number in self._options.real_clients]
        return [
            Cell(write, pods, number) for write, number in chosen for pods in self._options.pods
        ]

    def measure_gpuward(self) -> None:
        """Measure all configurations of gpuward that are wanted, and none."""
        # API servers then choose an endpoint of a Service for each call.
        flags = ("--enable-aggregator-routing=true",)
        with (
            tempfile.TemporaryDirectory() as name,
            ControlPlane(controllers=False, api_server_flags=flags, go_settings={}) as plane,
            ExitStack() as stack,
        ):
            installation = _Installation(plane, Path(name), stack, self._manifest)
            constant = installation.constant()
            wanted = [each for each in OF_GPUWARD if each in self._options.only]
            found = [installation.configuration(each) for each in wanted]
            self._measure(plane, Path(name), constant, found)

    def measure_peer(self, peer: Peer) -> None:
        """Measure another controller, if its program is there or can be built."""
        with (
            tempfile.TemporaryDirectory() as name,
            ControlPlane(controllers=False, go_settings={}) as plane,
            ExitStack() as stack,
        ):
            installation = _Installation(plane, Path(name), stack, self._manifest)
            constant = installation.constant(IGNORED_BY_GATEKEEPER)
            namespace = plane.namespace()
            folder = Path(name, peer.name)
            try:
                running = running_peer(peer, plane, folder, namespace, self._manifest)
                stack.enter_context(running)
            except (AssertionError, BuildError, ProcessError, TimeoutError) as error:
                self._notes.append(f"{peer.name} was not measured: {error}")
                return
            own = installation.counted(Configuration(peer.name, namespace))
            # Whether the constant answer is called alone, also beside this controller.
            constant = installation.counted(constant)
            self._measure(plane, Path(name), constant, [own])

    def _measure(
        self,
        plane: ControlPlane,
        folder: Path,
        constant: Configuration,
        found: Sequence[Configuration],
    ) -> None:
        runner = _Runner(plane, folder, self._manifest, self._options.seconds)
        self._calls |= {each.name: each.calls for each in (constant, *found)}
        for _ in range(self._options.rounds):
            for cell in self._cells:
                before = runner.run(constant, cell)
                for configuration in found:
                    if self.is_over:
                        self._notes.append(f"{configuration.name}, {cell}: the time was over")
                        continue
                    own = runner.run(configuration, cell)
                    after = runner.run(constant, cell)
                    self._add(cell, configuration.name, Pair(own, (before, after)))
                    before = after
        for name, number in _unanswered(plane).items():
            self._notes.append(f"{name}: API servers waited in vain for {number:,.0f} answers")

    def _add(self, cell: Cell, name: str, pair: Pair) -> None:
        self._results.setdefault(cell, {}).setdefault(name, []).append(pair)
        own = pair.own
        sys.stderr.write(
            f"{cell}: {name} {own.percentile(0.5):.0f} / {own.percentile(0.99):.0f} ms, "
            f"{own.rate:.0f}/s, p99 {pair.ratio(_p99):.2f} of the constant answer\n"
        )
        if own.failures:
            answers = ", ".join(f"{number} of {what}" for what, number in own.failures.items())
            self._notes.append(f"{name}, {cell}: other answers than 201: {answers}")
        busiest = max(each.busy for each in (own, *pair.constant))
        if busiest > MAX_BUSY:
            self._notes.append(f"{name}, {cell}: the clients took {busiest:.0%} of a processor")

    def show(self) -> None:
        """Print a table for each way of writing and each kind of pods, and the notes."""
        for write, pods in dict.fromkeys(cell[:2] for cell in self._results):
            cells = [cell for cell in self._results if cell[:2] == (write, pods)]
            titles = {"dry": "Dry runs", "real": "Real creations"}
            kinds = {"replicas": "replicas of one template", "new": "new templates"}
            print(f"\n{titles[write]}, {kinds.get(pods, 'ten pods of each new template')}:\n")
            header = ["", "calls"]
            for cell in cells:
                header += [f"{cell.clients} clients: p50 / p99", "rate", "to constant: p50 / p99"]
            _print_row(header)
            _print_row(["---"] * len(header))
            names = [name for name in NAMES if any(name in self._results[c] for c in cells)]
            for name in (CONSTANT, *names):
                row = [name, str(self._calls[name])]
                for cell in cells:
                    row += self._figures(cell, name)
                _print_row(row)
        if self._notes:
            print()
        for note in self._notes:
            print(f"- {note}")

    def _figures(self, cell: Cell, name: str) -> list[str]:
        """Three columns of a row: medians of the runs."""
        pairs = self._results[cell].get(name, [])
        runs = [pair.own for pair in pairs]
        if name == CONSTANT:
            all_pairs = [pair for found in self._results[cell].values() for pair in found]
            runs = [run for pair in all_pairs for run in pair.constant]
        if not runs:
            return ["", "", ""]
        p50, p99, rate = (
            statistics.median(figure(run) for run in runs) for figure in (_p50, _p99, _rate)
        )
        ratios = [
            statistics.median(pair.ratio(figure) for pair in pairs) if pairs else 1
            for figure in (_p50, _p99)
        ]
        columns = f"{ratios[0]:.2f} / {ratios[1]:.2f}"
        return [f"{p50:.0f} / {p99:.0f} ms", f"{rate:.0f}/s", columns]


def _p50(run: Latencies) -> float:
    return run.percentile(0.5)


def _p99(run: Latencies) -> float:
    return run.percentile(0.99)


def _rate(run: Latencies) -> float:
    return run.rate


def _print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |".replace("|  |", "| |"))


class _Runner:
    """Runs clients in the namespaces of a control plane."""

    def __init__(self, plane: ControlPlane, folder: Path, manifest: Any, seconds: float) -> None:
        self._plane = plane
        self._clients = Clients(folder, creators(plane, ACCOUNTS))
        self._body = json.dumps(manifest).encode()
        self._seconds = seconds

    def run(self, configuration: Configuration, cell: Cell) -> Latencies:
        """Run clients once, and delete the pods that they have created."""
        path = f"/api/v1/namespaces/{configuration.namespace}/pods"
        url = f"{self._plane.url}{path}{'?dryRun=All' if cell.write == 'dry' else ''}"
        # Until each client has had an answer; many clients also wait longer for each.
        warm_up = 0.5 + cell.clients / 300
        seconds = self._seconds * (2 if cell.clients >= MANY_CLIENTS else 1)
        mix: Mix = MIXES[cell.pods]
        found = self._clients.run(url, self._body, mix, cell.clients, warm_up, seconds)
        for server in configuration.servers:
            server.forget_log()
        if cell.write == "real":
            eventually(lambda: self._is_empty(path), what="all pods are deleted", seconds=120)
        return found

    def _is_empty(self, path: str) -> bool:
        self._plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
        found = self._plane.request("GET", f"{path}?limit=1")
        return not found.body["items"]


class _Installation:
    """Installs configurations in a control plane, until `stack` is closed."""

    def __init__(self, plane: ControlPlane, folder: Path, stack: ExitStack, manifest: Any) -> None:
        self._plane = plane
        self._folder = folder
        self._stack = stack
        self._manifest = manifest
        hosts = ["127.0.0.1", "localhost", f"{SERVICE}.{SERVICE}.svc"]
        pair = plane.authority.issue("webhook", hosts=hosts)
        self._certificate = folder_of(pair, folder / "tls")
        self._condition = chart_condition()
        self._server = self._start("gpuward")
        self._exports: Exports | None = None

    def constant(self, labels: dict[str, str] | None = None) -> Configuration:
        """Register webhooks that answer with gpuward's patch, and with none."""
        review = encoded(self._manifest)
        patch = self._server.send_review("/mutate/deny", review).get("patch", "")
        patches = {"/mutate/deny": patch, "/validate/deny": ""}
        server = baseline_server(self._folder, None, "quick", self._certificate, patches)
        self._stack.enter_context(server)
        namespace = self._plane.namespace(labels)
        return self._registered(CONSTANT, namespace, [server], condition="")

    def configuration(self, name: str) -> Configuration:
        """Install one of OF_GPUWARD."""
        exports = {
            "policies": (policy_objects, fix_objects),
            "mutating+policies": (policy_objects,),
            "fixes+validating": (fix_objects,),
        }
        kinds = {"mutating+policies": ["mutating"], "fixes+validating": ["validating"]}
        exported = exports.get(name)
        namespace = self._exported(*exported) if exported else self._plane.namespace()
        if name in ("none", "policies"):
            return self.counted(Configuration(name, namespace))
        servers, by = [self._server], None
        if name == "gpuward-3":
            servers = [self._start(f"{name}-{n}", _own_address()) for n in range(REPLICA_COUNT)]
            by = self._by_service(servers)
        elif name == "two-sets":
            servers.append(self._start(name))
            by = self._by_urls(*(server.address for server in servers))
        elif name == "two-hosts":
            address = self._server.address
            by = self._by_urls(address, address.replace("127.0.0.1", "localhost"))
        return self._registered(
            name, namespace, servers, by=by, kinds=kinds.get(name, WEBHOOK_KINDS)
        )

    def _start(self, name: str, host: str = "127.0.0.1") -> ServerProcess:
        server = gpuward_server(
            self._folder, None, "quick", self._certificate, name=name, host=host
        )
        return self._stack.enter_context(server)

    def _registered(
        self,
        name: str,
        namespace: str,
        servers: Sequence[ServerProcess],
        *,
        by: Callable[[str], dict[str, Any]] | None = None,
        condition: str | None = None,
        kinds: Sequence[str] = WEBHOOK_KINDS,
    ) -> Configuration:
        bundle = self._plane.authority.bundle
        config = by or by_url(f"https://{servers[0].address}", bundle)
        # An answer that comes late must not count as a quick one that was not awaited.
        options = RegistrationOptions(default=Action.DENY, timeout_seconds=30)
        self._stack.enter_context(
            registered(
                self._plane,
                config,
                options,
                name=name.replace("+", "-"),
                only=namespace,
                condition=self._condition if condition is None else condition,
                kinds=kinds,
            )
        )
        made = Configuration(name, namespace, servers=servers)

        def are_called() -> Configuration | None:
            counted = self.counted(made)
            return counted if counted.calls == len(kinds) else None

        return cast("Configuration", eventually(are_called, what=f"{name} is called"))

    def counted(self, configuration: Configuration) -> Configuration:
        """The configuration with the number of calls for a pod, which is admitted."""
        counts = []
        for _ in range(5):  # some with calls for what a controller writes itself
            before = webhook_calls(self._plane)
            answer = create(self._plane, configuration.namespace, self._manifest, dry_run=True)
            if answer.status != CREATED:
                sys.exit(f"{configuration.name}: {answer.body}")
            counts.append(round(webhook_calls(self._plane) - before))
        return configuration._replace(calls=min(counts))

    def _exported(self, *exports: Any) -> str:
        """Return a namespace in which these exports of the default policy act."""
        self._exports = self._exports or Exports(self._plane)
        return self._exports.add(default_policy(), ExportOptions(), *exports)

    def _by_urls(self, mutating: str, validating: str) -> Callable[[str], dict[str, Any]]:
        """Return the `clientConfig` for servers at two addresses."""
        bundle = self._plane.authority.bundle
        by = {"mutate": f"https://{mutating}", "validate": f"https://{validating}"}
        return lambda path: by_url(by[path.split("/")[1]], bundle)(path)

    def _by_service(self, servers: Sequence[ServerProcess]) -> Callable[[str], dict[str, Any]]:
        """Create a Service with the servers as endpoints, and return the `clientConfig` for it."""
        plane = self._plane
        plane.create("/api/v1/namespaces", objects.namespace(SERVICE, {}))
        port = int(servers[0].address.rpartition(":")[2])
        plane.expose(SERVICE, SERVICE, port)
        for number, server in enumerate(servers):
            host, _, own_port = server.address.rpartition(":")
            endpoints = {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"{SERVICE}-{number}",
                    "labels": {"kubernetes.io/service-name": SERVICE},
                },
                "addressType": "IPv4",
                "ports": [{"name": "", "port": int(own_port), "protocol": "TCP"}],
                "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
            }
            path = f"/apis/discovery.k8s.io/v1/namespaces/{SERVICE}/endpointslices"
            plane.create(path, endpoints)
        return by_service(SERVICE, SERVICE, port, plane.authority.bundle)


SERVICE = "gpuward"  # and its namespace


def _own_address() -> str:
    """An address of this machine that is none of loopback, as endpoints must not be those."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # of documentation; nothing is sent
        address: str = probe.getsockname()[0]
    return address


def _unanswered(plane: ControlPlane) -> dict[str, float]:
    """Return how many calls were not answered in time so that a pod passed, by webhook."""
    samples = plane.metrics("apiserver_admission_webhook_").get(
        "apiserver_admission_webhook_fail_open_count_total", []
    )
    found: dict[str, float] = {}
    for labels, value in samples:
        found[labels["name"]] = found.get(labels["name"], 0) + value
    return found
