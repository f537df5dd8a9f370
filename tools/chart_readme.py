"""Write the chart's README from its template and values.yaml: `python -m tools.chart_readme`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.testkit.control_plane.build import chart_tools

CHART = Path(__file__).parents[1] / "charts" / "gpuward"


def readme(helm_docs: Path) -> str:
    """Return the text of the README; `helm_docs` is the path of the helm-docs program.

    Raises ValueError with the warnings of helm-docs, if it prints any.
    """
    options = ["--dry-run", "--sort-values-order=file", "--log-level=warning"]
    command = [str(helm_docs), f"--chart-search-root={CHART}", *options]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    if process.stderr:
        raise ValueError(process.stderr)
    return process.stdout


if __name__ == "__main__":
    text = readme(chart_tools()["helm-docs"])
    (CHART / "README.md").write_text(text, encoding="utf-8")
