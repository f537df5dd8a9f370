"""gpuward has nothing to say against the samples of controllers, and admits them."""

from __future__ import annotations

import json

import pytest

from lint.cli import main as lint
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.controllers.controller import Controller
from tests.testkit.controllers.module_samples import (
    MODULES,
    compare_answers,
    profile_of,
    reviewed,
    samples,
)
from webhook.registration import MODE_LABEL

pytest_plugins = ["tests.testkit.controllers.fixtures"]
# Kueue's and JobSet's have none.
WITH_SAMPLES = ("kserve", "kuberay", "lws", "trainer")


@pytest.mark.parametrize("module", MODULES)
def test_the_linter_reports_only_what_was_reviewed(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known, unreadable = reviewed(), []
    found: dict[str, list[str]] = {}
    for name, file in samples(module).items():
        lint(["--profile", profile_of(file), "--isolated", "-o", "json", str(file)])
        report = json.loads(capsys.readouterr().out)
        rules = {finding["rule"] for finding in report["findings"]} - {*known.additions}
        if rules:
            found[name] = sorted(rules)
        if report["not_evaluated"]:
            unreadable.append(name)
        # Otherwise the linter has read something else than what it is to be asked about.
        assert report["summary"]["pods"] or report["not_evaluated"], name
    assert bool(samples(module)) is (module in WITH_SAMPLES)
    start = f"{module}/"
    assert found == {
        name: rules for name, rules in known.findings.items() if name.startswith(start)
    }
    assert unreadable == [name for name in known.unreadable if name.startswith(start)]


@pytest.mark.parametrize("module", ["kuberay", "lws", "trainer"])
def test_the_cluster_answers_as_without_gpuward(
    plane: ControlPlane, server: object, running: dict[str, Controller], module: str
) -> None:
    assert server
    assert module in running
    compare_answers(plane, plane.namespace({MODE_LABEL: "deny"}), module)
