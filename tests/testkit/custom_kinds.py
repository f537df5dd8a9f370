"""Defines custom kinds on a real API server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _definition(kind: str, plural: str, group: str) -> dict[str, Any]:
    """A CustomResourceDefinition that allows any `spec`."""
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": open_object}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def define_kinds(cluster: Cluster, files: Iterable[Path]) -> None:
    """Create the CustomResourceDefinitions in files, and wait until their kinds are served."""
    given = [f"--filename={file}" for file in files]
    cluster.kubectl("apply", "--server-side", *given)
    # kubectl refuses to wait for an object that has no conditions yet.
    wait = ("wait", "--for=condition=Established", TIMEOUT)
    eventually(lambda: cluster.kubectl(*wait, *given), what="the definitions are established")
    names = cluster.kubectl("get", *given, "--output=jsonpath={.items[*].metadata.name}").stdout
    for name in names.split():
        # An API server may say that a definition is established before it answers by it.
        eventually(lambda: cluster.kubectl("get", name, "--all-namespaces"), what=name)  # noqa: B023


@contextmanager
def custom_kind(plane: ControlPlane, kind: str, plural: str, group: str) -> Iterator[None]:
    """Define a kind that allows any `spec`, until the block is left."""
    plane.create(DEFINITIONS, _definition(kind, plural, group))
    path = f"/apis/{group}/v1/{plural}"
    eventually(lambda: plane.request("GET", path).status == 200, what=f"{kind} is served")
    try:
        yield
    finally:
        plane.request("DELETE", f"{DEFINITIONS}/{plural}.{group}")
