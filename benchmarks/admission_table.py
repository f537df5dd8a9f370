"""The table that `benchmarks.admission` prints: medians over the starts of the servers."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from benchmarks.load import Load


class Run(NamedTuple):
    """One short run against one server."""

    load: Load
    cpu: float  # microseconds of CPU time for each request


Results = dict[tuple[str, str], list[tuple[Run, Run]]]
"""The runs against gpuward and the baseline of each case and mix, one pair for each start."""


def print_table(title: str, results: Results) -> None:
    """Print one line for each case and mix."""
    print(f"\n{title}")
    print("`base` is the baseline: a handler that answers with a constant patch.")
    print(f"{'':<44}{'requests/s':>11}{'base':>8}{'share':>7}{'by CPU':>8}{'(starts)':>12}", end="")
    print(f"{'p50 ms':>8}{'base':>7}{'p99 ms':>8}{'base':>7}  CPU µs")
    for (case, mix), pairs in results.items():
        ours, bases = zip(*pairs, strict=True)
        shares = sorted(base.cpu / own.cpu for own, base in pairs)
        by_rate = median(own.load.rate / base.load.rate for own, base in pairs)
        print(
            f"{case:<24}{mix:<20}{_median(ours, 'rate'):>11,.0f}{_median(bases, 'rate'):>8,.0f}"
            f"{by_rate:>7.0%}{median(shares):>8.0%}{f'({shares[0]:.0%}-{shares[-1]:.0%})':>12}"
            f"{_median(ours, 'p50'):>8.2f}{_median(bases, 'p50'):>7.2f}"
            f"{_median(ours, 'p99'):>8.2f}{_median(bases, 'p99'):>7.2f}"
            f"{median(run.cpu for run in ours):>8.0f}"
        )


def _median(runs: Iterable[Run], figure: str) -> float:
    return float(median(getattr(run.load, figure) for run in runs))
