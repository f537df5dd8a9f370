"""Registers `gpuward serve` with a real API server."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rules.finding import Action
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.admission.server_process import Server, folder_of
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.control_plane.webhooks import await_webhooks
from webhook.registration import MODE_LABEL, NAME_LABEL, RegistrationOptions, configurations

REFUSED = 403


def by_url(url: str, bundle: bytes) -> Callable[[str], dict[str, Any]]:
    """`clientConfig` of a server that the API server reaches by URL."""
    encoded = base64.b64encode(bundle).decode()
    return lambda path: {"url": url + path, "caBundle": encoded}


def by_service(
    service: str, namespace: str, port: int, bundle: bytes
) -> Callable[[str], dict[str, Any]]:
    """`clientConfig` of a server behind a Service."""
    encoded = base64.b64encode(bundle).decode()
    service_ref = {"name": service, "namespace": namespace, "port": port}
    return lambda path: {"service": {**service_ref, "path": path}, "caBundle": encoded}


@contextmanager
def registered(
    plane: Cluster,
    client_config: Callable[[str], dict[str, Any]],
    options: RegistrationOptions | None = None,
    *,
    name: str = "gpuward-test",
    only: str | None = None,
    condition: str = "",
    kinds: Sequence[str] = ("mutating", "validating"),
) -> Iterator[None]:
    """Register a server until the end of the block; with `only`, for that namespace alone.

    When the block begins, the API server's admission knows all webhooks.
    `condition` is a CEL match condition for pods. `kinds` are the webhooks that are registered.
    By default only namespaces with the mode label are enforced, so that tests do not disturb
    each other.
    """
    # Under failurePolicy Ignore a slow response counts as none, so the timeout is long.
    options_used = options or RegistrationOptions(default=Action.OFF, timeout_seconds=30)
    manifests = configurations(name, client_config, options_used)
    paths = [f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations" for kind in kinds]
    chosen = [found for found in manifests if found["kind"].lower().startswith(tuple(kinds))]
    for path, configuration in zip(paths, chosen, strict=True):
        for entry in configuration["webhooks"]:
            if condition and not entry["name"].startswith("workloads."):
                entry["matchConditions"] = [{"name": "may-concern-a-rule", "expression": condition}]
        if only is not None:
            term = {"key": NAME_LABEL, "operator": "In", "values": [only]}
            for entry in configuration["webhooks"]:
                selector = entry["namespaceSelector"]
                entry["namespaceSelector"] = {
                    "matchExpressions": [*selector["matchExpressions"], term]
                }
        plane.create(path, configuration)
    try:
        await_webhooks(plane)
        yield
    finally:
        for path in paths:
            plane.request("DELETE", f"{path}/{name}")


def is_enforced(plane: Cluster, namespace: str) -> bool:
    """Return whether gpuward refuses in `namespace` a pod that sees all GPUs and requests none."""
    bypass = pod(container(**variable("all")))
    answer = create(plane, namespace, bypass, dry_run=True)
    return answer.status == REFUSED and "gpuward" in str(answer.body)


def create(
    plane: Cluster, namespace: str, manifest: Any, *, dry_run: bool = False, user: str = ""
) -> Response:
    """Create a Pod or an object of a built-in workload kind, as admin or as `user`."""
    kinds = {"Pod": "pods", "Deployment": "deployments", "Job": "jobs", "CronJob": "cronjobs"}
    group = manifest["apiVersion"]
    root = "/api/v1" if group == "v1" else f"/apis/{group}"
    path = f"{root}/namespaces/{namespace}/{kinds[manifest['kind']]}"
    body = {**manifest, "metadata": {**manifest.get("metadata", {}), "namespace": namespace}}
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"} if user else {}
    return plane.request("POST", path + ("?dryRun=All" if dry_run else ""), body, headers)


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """The processes of the servers that tests start; they are stopped at the end."""
    running = Processes(tmp_path_factory.mktemp("servers"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def server(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with the default policy, registered for namespaces with the mode label."""
    with registered_server(plane, processes, tmp_path_factory.mktemp("gpuward")) as serving:
        yield serving


@contextmanager
def registered_server(plane: ControlPlane, processes: Processes, folder: Path) -> Iterator[Server]:
    """Such a server until the end of the block. `folder` is its own, and empty."""
    pair = plane.authority.issue("gpuward", hosts=["127.0.0.1"])
    certificate = folder_of(pair, folder / "certificate")
    serving = Server(processes, folder, certificate, arguments=("--drain-seconds", "0"))
    with registered(plane, by_url(serving.url, plane.authority.bundle)):
        probe = plane.namespace({MODE_LABEL: "deny"})
        eventually(lambda: is_enforced(plane, probe), what="the webhook is called")
        yield serving
