"""The chart as the workflow packs and pushes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.testkit.control_plane.build import Programs
from tests.testkit.release.repository import checkout
from tests.testkit.release.servers import Registry
from tests.testkit.release.workflow import run_step

PUBLIC = "ghcr.io/gpuward/charts/gpuward"


class PushedChart(NamedTuple):
    """A chart in the registry: its repository there, and its digest."""

    repository: str
    digest: str


def push_chart(
    repository: Path, version: str, folder: Path, registry: Registry, programs: Programs
) -> PushedChart:
    """Run the step of the workflow that packs and pushes the chart of a version."""
    checkout(repository, f"v{version}", folder)
    charts = f"{registry.address}/gpuward/charts"
    expressions = {"github.token": "any", "needs.version.outputs.version": version}
    environment = {
        **helm_environment(folder.with_name(f"{folder.name}-home"), registry, programs),
        "GITHUB_ACTOR": "gpuward",
        "REGISTRY": registry.address,
        "CHARTS": charts,
    }
    outputs = run_step("chart", "push", folder, expressions, environment)
    return PushedChart(f"{charts}/gpuward", outputs["digest"])


def helm_environment(home: Path, registry: Registry, programs: Programs) -> Mapping[str, str]:
    """Variables with which `helm` is Helm 4 that trusts the registry, with a home of its own."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    link = home / "bin" / "helm"
    if not link.exists():
        link.symlink_to(programs["helm4"])
    return {
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "SSL_CERT_FILE": str(registry.authority),
    }
