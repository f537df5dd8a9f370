"""The options of `gpuward webhooks check`, and how the chart uses them."""

from __future__ import annotations

import re

import pytest

from registration.cli import main
from tests.testkit.chart.rendering import rendered, the


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--address", text] for text in ("", "x", ":1", "x:0", "x:65536", "x:1/y", "::1:80")),
        *(["--wait", text] for text in ("", "-1", "nan", "soon")),
        ["--mutating-configuration", ","],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", *arguments])
    assert ended.value.code == 2
    assert f"argument {arguments[0]}: " in capsys.readouterr().err


def test_the_help_says_how_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    told = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "exit status: 0 all addresses answer, 1 one does not, 2 wrong usage" in told


def test_without_credentials(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["check", "--kubeconfig", "/nonexistent/c", "--wait", "600"]) == 1
    told = "gpuward webhooks: no credentials for the Kubernetes API: there is no file "
    assert capsys.readouterr().err == f"{told}/nonexistent/c\n"


@pytest.mark.parametrize(
    ("values", "more"), [("{}", []), ("clientCAConfigMap: api-servers", ["--tls-only"])]
)
def test_the_chart_s_test_waits_and_knows_where_callers_need_a_certificate(
    values: str, more: list[str]
) -> None:
    pod = the(rendered(values), "Pod")
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["webhooks", "check", "--wait=60", *more]
