"""Tests of the options of `gpuward webhooks check`, and of their use in the chart."""

from __future__ import annotations

import re

import pytest

from cluster.webhooks.cli import main
from tests.testkit.chart.rendering import find_one, render


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--address", text] for text in ("", "x", ":1", "x:0", "x:65536", "x:1/y", "::1:80")),
        *(["--wait", text] for text in ("", "-1", "nan", "soon")),
        ["--mutating-configuration", ","],
    ],
)
def test_wrong_usage_ends_with_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["check", *arguments])
    assert exit_info.value.code == 2
    assert f"argument {arguments[0]}: " in capsys.readouterr().err


def test_the_help_lists_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    expected = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "exit status: 0 all is well, 1 something is wrong, 2 wrong usage" in expected


def test_missing_credentials_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["check", "--kubeconfig", "/nonexistent/c", "--wait", "600"]) == 1
    expected = "gpuward webhooks: no credentials for the Kubernetes API: there is no file "
    assert capsys.readouterr().err == f"{expected}/nonexistent/c\n"


@pytest.mark.parametrize(
    ("values", "more"), [("{}", []), ("clientCAConfigMap: api-servers", ["--tls-only"])]
)
def test_the_chart_s_test_waits_and_knows_where_callers_need_a_certificate(
    values: str, more: list[str]
) -> None:
    pod = find_one(render(values), "Pod", "gpuward-test")
    (container,) = pod["spec"]["containers"]
    first, second, wait, expected, *others = container["args"]
    assert (first, second, wait, others) == ("webhooks", "check", "--wait=60", more)
    assert expected.startswith("--expected=/")
