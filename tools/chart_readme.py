"""Writes the chart's README from its template and the values: `python -m tools.chart_readme`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.testkit.control_plane.build import chart_tools

CHART = Path(__file__).parents[1] / "charts" / "gpuward"


def readme(helm_docs: Path) -> str:
    """The text that the README shall have."""
    options = ["--dry-run", "--sort-values-order=file", "--log-level=warning"]
    command = [str(helm_docs), f"--chart-search-root={CHART}", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    if done.stderr:
        raise ValueError(done.stderr)
    return done.stdout


if __name__ == "__main__":
    made = readme(chart_tools()["helm-docs"])
    (CHART / "README.md").write_text(made, encoding="utf-8")
