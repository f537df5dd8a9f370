"""The pages about GPU platforms: their policies and examples, and that every rule has a source."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpuward.__main__ import main
from gpuward.commands import COMMANDS
from rules.all_rules import ALL_RULES
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.cases import TODAY
from tools.vendor_pages import policy_of, vendors

VENDORS = vendors()
RULES = {rule.name: rule for rule in ALL_RULES}
CHART = Path(__file__).parents[2] / "charts/gpuward"
ANSWERS = {"rules", "commands", "settings", "not_ours"}
# An address, a repository, or a path in one, or the title of a document.
SOURCE = re.compile(r'https://|`[\w./-]+/[\w./-]+`|[\w-]+/[\w-]+|, "')


def statements() -> list[tuple[str, Mapping[str, Any]]]:
    return [
        (name, statement)
        for name, vendor in VENDORS.items()
        for page in vendor["pages"]
        for statement in page["statements"]
    ]


@pytest.mark.parametrize("name", VENDORS)
def test_the_helm_values_are_a_policy_that_the_webhook_accepts(name: str, tmp_path: Path) -> None:
    values = yaml.safe_load(VENDORS[name]["values"])
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate({**defaults, **values}, schema)
    file = tmp_path / "gpuward.yaml"
    file.write_text(yaml.safe_dump(values["policy"]), encoding="utf-8")
    assert main(["policy", "check", str(file)]) == 0


@pytest.mark.parametrize("name", VENDORS)
def test_the_example_has_the_faults_that_the_page_names(name: str) -> None:
    manifest = yaml.safe_load(VENDORS[name]["example"])
    result = check(manifest, policy_of(VENDORS[name]), Context(TODAY, namespace="default"))
    assert not result.failures
    assert sorted({finding.rule for finding in result.findings}) == VENDORS[name]["finds"]


@pytest.mark.parametrize("name", [name for name in VENDORS if "component" in VENDORS[name]])
def test_the_component_is_refused_unless_the_policy_lists_it(name: str) -> None:
    manifest = yaml.safe_load(VENDORS[name]["component"])
    values = yaml.safe_load(VENDORS[name]["values"])
    listed = check(manifest, policy_of(VENDORS[name]), Context(TODAY))
    assert (listed.findings, listed.components) == ([], 1)
    for profile in values["policy"]["profiles"]:
        profile.pop("components", None)
    unlisted = policy_of({**VENDORS[name], "values": yaml.safe_dump(values)})
    refused = [
        f for f in check(manifest, unlisted, Context(TODAY)).findings if f.action.word == "deny"
    ]
    assert refused
    assert all("under components" in finding.help for finding in refused)


def test_every_statement_has_an_answer_that_exists() -> None:
    for name, statement in statements():
        assert statement.keys() & ANSWERS, (name, statement["says"])
        assert statement.keys() <= {"says", *ANSWERS}, (name, statement)
        unknown = set(statement.get("rules", ())) - RULES.keys()
        assert not unknown, (name, statement["says"], unknown)
        for command in statement.get("commands", ()):
            program, subcommand, *_ = command.split()
            assert (program, subcommand in COMMANDS) == ("gpuward", True), command


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_a_statement_of_a_vendor_or_a_public_source(name: str) -> None:
    answered = any(name in statement.get("rules", ()) for _, statement in statements())
    assert answered or SOURCE.search(RULES[name].documentation.get("References", ""))
