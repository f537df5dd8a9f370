"""A parent chart that depends on gpuward's."""

from __future__ import annotations

from pathlib import Path

from tests.testkit.chart.rendering import CHART, run_helm


def umbrella(folder: Path, values: str, helm: str) -> Path:
    """Write a chart with `values`, fetch its dependency with `helm`, and return its folder."""
    folder = folder / "umbrella"
    folder.mkdir()
    dependency = f"{{name: gpuward, version: '*', repository: 'file://{CHART}', "
    (folder / "Chart.yaml").write_text(
        "apiVersion: v2\nname: umbrella\nversion: 1.0.0\n"
        f"dependencies:\n  - {dependency}condition: gpuward.enabled}}\n"
    )
    (folder / "values.yaml").write_text(values)
    done = run_helm("dependency", "update", str(folder), helm=helm)
    assert done.returncode == 0, done.stderr
    return folder
