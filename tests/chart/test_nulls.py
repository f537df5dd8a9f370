"""Empty values: `mode:` is null in YAML, and Helm removes the default of a value that is null."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.testkit.chart.rendering import CHART, HELMS, render, render_text, template

DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
# Objects that the schema leaves open. To remove one of their entries is what null is for.
OPEN_OBJECTS = {
    *("resources", "nodeSelector", "podSecurityContext", "securityContext"),
    *("certificates.self.resources", "registration.annotations", "monitoring.dashboard.labels"),
    "nodeGuard.labels",
}


def key_paths(values: dict[str, Any], parent: str = "") -> Iterator[str]:
    """The path of every key, with dots."""
    for key, value in values.items():
        path = f"{parent}{key}"
        yield path
        if isinstance(value, dict) and path not in OPEN_OBJECTS:
            yield from key_paths(value, f"{path}.")


def with_null(path: str) -> str:
    values: Any = None
    for key in reversed(path.split(".")):
        values = {key: values}
    return yaml.safe_dump(values)


@pytest.mark.parametrize("path", [*key_paths(DEFAULTS)])
def test_an_empty_value_is_its_default_or_refused_with_its_name(path: str) -> None:
    done = template(with_null(path))
    if done.returncode:
        assert f"missing property '{path.rpartition('.')[2]}'" in done.stderr
    else:
        assert done.stdout == render_text()


@pytest.mark.parametrize("helm", HELMS)
def test_an_empty_mode_is_never_off(helm: str) -> None:
    for key in ("mode", "minimumMode"):
        done = template(f"{key}:\n", helm=helm)
        assert done.returncode
        assert f"missing property '{key}'" in done.stderr


@pytest.mark.parametrize("helm", HELMS)
def test_empty_lists_and_objects_are_no_mistake(helm: str) -> None:
    empty = "policy:\ncommonLabels:\npodLabels:\npodAnnotations:\nserviceAccount: {annotations: }\n"
    assert render(empty + "registration: {excludedNamespaces: }", helm=helm) == render(helm=helm)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(
    ("policy", "path"),
    [
        ("{rules: }", "/policy/rules"),
        ("{exceptions: }", "/policy/exceptions"),
        ("{profiles: }", "/policy/profiles"),
        ("{rules: {absurd-count: }}", "/policy/rules/absurd-count"),
        ("{rules: {absurd-count: {action: }}}", "/policy/rules/absurd-count/action"),
        ("{exceptions: [ null ]}", "/policy/exceptions/0"),
    ],
)
def test_an_empty_value_in_the_policy_is_refused_with_its_path(
    policy: str, path: str, helm: str
) -> None:
    done = template(f"policy: {policy}", helm=helm)
    assert done.returncode
    assert f"at '{path}'" in done.stderr
