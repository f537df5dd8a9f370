"""Each alert as Prometheus evaluates it: when it fires, with which text, and when it does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testkit.chart.alert_examples import (
    LONG,
    POD,
    REQUEST_EXAMPLES,
    Example,
    ready_pod_series,
)
from tests.testkit.chart.audit_alert_examples import AUDIT_EXAMPLES
from tests.testkit.chart.certificate_alert_examples import CERTIFICATE_EXAMPLES, DAY, EXPIRY
from tests.testkit.chart.monitoring import alerts, dashboard_queries, rules_file, run_promtool
from tests.testkit.chart.policy_alert_examples import POLICY_EXAMPLES
from tests.testkit.chart.registration_alert_examples import REGISTRATION_EXAMPLES
from tests.testkit.control_plane.build import Programs

EXAMPLES = REQUEST_EXAMPLES | POLICY_EXAMPLES | CERTIFICATE_EXAMPLES | REGISTRATION_EXAMPLES
EXAMPLES |= AUDIT_EXAMPLES


def test_every_alert_has_an_example() -> None:
    assert set(EXAMPLES) == set(alerts())


@pytest.mark.parametrize(
    ("name", "example"),
    [
        pytest.param(name, example, id=f"{name}-{number}")
        for name, examples in EXAMPLES.items()
        for number, example in enumerate(examples)
    ],
)
def test_an_alert_fires_when_it_should(
    chart_tools: Programs, tmp_path: Path, name: str, example: Example
) -> None:
    alert = alerts()[name]
    fired = {
        "exp_labels": alert["labels"] | example.labels,
        "exp_annotations": {
            key: _expand(text, example.template_values)
            for key, text in alert["annotations"].items()
        },
    }
    until = int(example.after.removesuffix("m"))
    minutes = range(max(example.quiet_from, until - 120), until + 1)
    run_promtool_test(
        chart_tools,
        tmp_path,
        alert_test(alert, example.fires, {example.after: [fired]}),
        alert_test(alert, example.quiet, {f"{m}m": [] for m in minutes}),
        rules=[alert],
    )


def test_certificate_alert_thresholds_follow_from_the_lifetime(
    chart_tools: Programs, tmp_path: Path
) -> None:
    def check_both(days: float, expected: list[Any]) -> None:
        series = ready_pod_series(f"{days * DAY + 7200}{LONG}") | {EXPIRY: f"{days * DAY}{LONG}"}
        for name in ("GpuwardCertificateNotRenewed", "GpuwardCertificateExpiresSoon"):
            test = alert_test(short[name], series, {"120m": expected})
            run_promtool_test(chart_tools, tmp_path, test, rules=[short[name]])

    short = alerts(certificates={"self": {"servingDays": 30}})
    check_both(9.5, [])  # renewed when 10 days are left
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
    labels += ', dry_run="false"'
    (query,) = [
        q for title, q in dashboard_queries().items() if title.startswith("Would be refused")
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": f"gpuward_rule_outcomes_total{{{labels}}}", "values": samples}],
        "promql_expr_test": [
            {
                "expr": f"round({query.replace('1d', '1h')})",
                "eval_time": "80m",
                "exp_samples": [{"labels": "{}", "value": count}],
            }
        ],
    }
    run_promtool_test(chart_tools, tmp_path, test)


def alert_test(alert: Any, series: dict[str, str], expected: dict[str, Any]) -> dict[str, Any]:
    """A test of promtool about the alerts that fire at these times."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"alertname": alert["alert"], "eval_time": time, "exp_alerts": fired}
            for time, fired in expected.items()
        ],
    }


def run_promtool_test(
    tools: Programs, folder: Path, *tests: Any, rules: Sequence[Any] = ()
) -> None:
    """Run tests of promtool about rules, which must pass."""
    file = folder / "test.yaml"
    rule_files = [str(rules_file(folder, [*rules]))] if rules else []
    file.write_text(yaml.safe_dump({"rule_files": rule_files, "tests": [*tests]}))
    done = run_promtool(tools, "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def _expand(text: str, template_values: dict[str, str]) -> str:
    return re.sub(r"\{\{ (.*?) \}\}", lambda found: template_values[found[1]], text)
