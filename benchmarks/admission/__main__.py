"""Measure the webhook under load: `python -m benchmarks.admission [MEASUREMENT] [OPTION …]`.

- `throughput` (default): requests a second and latency, as shares of a baseline
- `creations`: how long users wait who create pods, beside Kyverno and Gatekeeper
- `api_server`: what creations of pods cost a real API server
- `exclusion`: the same of a pod without a GPU, which is kept off GPU nodes
- `heavy`: the reviews that take longest, and a flood of them
- `failures`: what failures cost in pods that are refused or not evaluated
- `soak`: whether memory stays flat

MEASUREMENT --help lists the options. docs/benchmarks.md and docs/resilience.md have our figures.
"""

from __future__ import annotations

import sys
from importlib import import_module

MEASUREMENTS = ("throughput", "creations", "api_server", "exclusion", "heavy", "failures", "soak")


def main() -> int:
    """Run the measurement that the command line names; the exit status."""
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    name = sys.argv.pop(1) if sys.argv[1:2] and sys.argv[1] in MEASUREMENTS else MEASUREMENTS[0]
    status: int = import_module(f"benchmarks.admission.{name}").main()
    return status


if __name__ == "__main__":
    sys.exit(main())
