"""Each alert as Prometheus evaluates it: when it fires, with which words, and when it does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testkit.chart.alert_examples import ABOUT_CALLS, LONG, POD, Example, ready
from tests.testkit.chart.certificate_alert_examples import ABOUT_CERTIFICATES, DAY, EXPIRY
from tests.testkit.chart.monitoring import alerts, promtool, questions, rules_file
from tests.testkit.control_plane.build import Programs

EXAMPLES = ABOUT_CALLS | ABOUT_CERTIFICATES


def test_every_alert_has_an_example() -> None:
    assert list(EXAMPLES) == list(alerts())


@pytest.mark.parametrize(
    ("name", "example"),
    [
        pytest.param(name, example, id=f"{name}-{number}")
        for name, examples in EXAMPLES.items()
        for number, example in enumerate(examples)
    ],
)
def test_an_alert_fires_when_it_shall(
    chart_tools: Programs, tmp_path: Path, name: str, example: Example
) -> None:
    alert = alerts()[name]
    fired = {
        "exp_labels": alert["labels"] | example.labels,
        "exp_annotations": {
            key: _spoken(text, example.words) for key, text in alert["annotations"].items()
        },
    }
    judged(chart_tools, tmp_path, alert, example.fires, {example.after: [fired]})
    until = int(example.after.removesuffix("m"))
    minutes = range(max(example.quiet_from, until - 120), until + 1)
    judged(chart_tools, tmp_path, alert, example.quiet, {f"{m}m": [] for m in minutes})


def test_what_is_late_follows_from_how_long_certificates_live(
    chart_tools: Programs, tmp_path: Path
) -> None:
    def when(days: float, expected: list[Any]) -> None:
        series = ready(f"{days * DAY + 7200}{LONG}") | {EXPIRY: f"{days * DAY}{LONG}"}
        for name in ("GpuwardCertificateNotRenewed", "GpuwardCertificateExpiresSoon"):
            judged(chart_tools, tmp_path, short[name], series, {"120m": expected})

    short = alerts(certificates={"self": {"servingDays": 30}})
    when(9.5, [])  # renewed when 10 days are left
    assert alerts()["GpuwardCertificateNotRenewed"]["expr"].endswith(f"< {20 * DAY}\n")
    assert alerts()["GpuwardCertificateExpiresSoon"]["expr"].endswith(f"< {14 * DAY}\n")
    given = alerts(certificates={"mode": "certManager"})
    assert given["GpuwardCertificateExpiresSoon"]["expr"].endswith(f"< {14 * DAY}\n")


@pytest.mark.parametrize(
    ("samples", "count"), [("_x30 1x60", 1), ("3x30 5x60", 2), ("_x30 2x10 stale", 2), ("9x90", 0)]
)
def test_the_dashboard_counts_the_first_event_too(
    chart_tools: Programs, tmp_path: Path, samples: str, count: int
) -> None:
    labels = f'{POD}, rule="absurd-count", outcome="would-be-denied", path="validate", mode="warn"'
    (question,) = [q for title, q in questions().items() if title.startswith("Would be refused")]
    test = {
        "interval": "1m",
        "input_series": [{"series": f"gpuward_rule_outcomes_total{{{labels}}}", "values": samples}],
        "promql_expr_test": [
            {
                "expr": f"round({question.replace('1d', '1h')})",
                "eval_time": "80m",
                "exp_samples": [{"labels": "{}", "value": count}],
            }
        ],
    }
    passes(chart_tools, tmp_path, test)


def judged(
    tools: Programs, folder: Path, alert: Any, series: dict[str, str], expected: dict[str, Any]
) -> None:
    """Let Prometheus say what has become of an alert at these times."""
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"alertname": alert["alert"], "eval_time": time, "exp_alerts": fired}
            for time, fired in expected.items()
        ],
    }
    passes(tools, folder, test, rules_file(folder, [alert]))


def passes(tools: Programs, folder: Path, test: Any, *rules: Path) -> None:
    """Let promtool run a test of its kind."""
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rule) for rule in rules], "tests": [test]}))
    done = promtool(tools, "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def _spoken(text: str, words: dict[str, str]) -> str:
    return re.sub(r"\{\{ (.*?) \}\}", lambda found: words[found[1]], text)
