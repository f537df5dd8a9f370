"""Empty values: `mode:` is null in YAML, and Helm removes the default of a value that is null."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
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


def with_nulls(paths: Iterable[str]) -> str:
    values: dict[str, Any] = {}
    for path in paths:
        *parents, last = path.split(".")
        functools.reduce(lambda inner, key: inner.setdefault(key, {}), parents, values)[last] = None
    return yaml.safe_dump(values)


def missing_paths(error: str) -> set[str]:
    """The path of every value that helm misses, with dots."""
    return {
        f"{parent[1:]}/{name}".lstrip("/").replace("/", ".")
        for parent, names in re.findall(r"at '(.*)': missing propert(?:y|ies) (.*)", error)
        for name in re.findall(r"'(.*?)'", names)
    }


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("depth", range(4))
def test_empty_values_are_their_defaults_or_refused_with_their_paths(depth: int, helm: str) -> None:
    """All of a depth at once, as helm names each that it refuses."""
    empty = {path for path in key_paths(DEFAULTS) if path.count(".") == depth}
    refused = missing_paths(template(with_nulls(empty), helm=helm).stderr)
    assert empty
    assert refused <= empty
    assert render_text(with_nulls(empty - refused), helm=helm) == render_text(helm=helm)


def test_no_value_is_deeper() -> None:
    assert max(path.count(".") for path in key_paths(DEFAULTS)) == 3


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
