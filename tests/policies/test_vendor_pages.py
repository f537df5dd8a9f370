"""The pages about GPU platforms: their policies and examples, and that every rule has a source."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from gpuward.__main__ import main
from gpuward.commands import COMMANDS
from policies.loading import default_policy
from rules.all_rules import ALL_RULES
from rules.engine.fixing import check
from rules.engine.rule_set import RuleSet
from rules.profile.context import Context
from tests.testkit.cases import TODAY, Case, cases
from tests.testkit.paths import DOCS
from tests.testkit.vendor_examples import FOLDER, Example, examples, statements
from tools.vendor_pages import ANSWERS, policy_of, policy_text, rules_that_are_off, vendors

VENDORS = vendors()
RULES = {rule.name: rule for rule in ALL_RULES}
CHART = Path(__file__).parents[2] / "charts/gpuward"
STATEMENTS = statements()
CASES = {(case.rule, case.file.stem): case for case in cases()}
# An address, a repository, or a path in one, or the title of a document.
SOURCE = re.compile(r'https://|`[\w./-]+/[\w./-]+`|[\w-]+/[\w-]+|, "')


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
    for statement in STATEMENTS:
        content = statement.content
        assert content.keys() & {*ANSWERS, "not_ours"}, str(statement)
        assert content.keys() <= {"says", *ANSWERS, "not_ours", "clean", "not_executed"}
        unknown = {*content.get("rules", ())} - RULES.keys()
        assert not unknown, (str(statement), unknown)
        for command in content.get("commands", ()):
            program, subcommand, *_ = command.split()
            assert (program, subcommand in COMMANDS) == ("gpuward", True), command


def test_every_answer_is_run_or_says_why_not() -> None:
    for statement in STATEMENTS:
        keys = statement.content.keys()
        if keys & ANSWERS:
            is_run = bool(keys & {"rules", "commands", "clean"})
            assert is_run is ("not_executed" not in keys), str(statement)


@pytest.mark.parametrize("example", examples("rules"), ids=str)
def test_a_rule_reports_what_breaks_the_statement(
    example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    file = FOLDER / example.name
    if file.exists():
        main(["lint", "--isolated", "--also", "dockerfile,compose,shell", "-o", "json", str(file)])
        found = json.loads(capsys.readouterr().out)["findings"]
        messages = [each["message"] for each in found if each["rule"] == example.answer]
    else:
        case = CASES[example.answer, example.name]
        statement = example.statement
        is_off = example.answer in rules_that_are_off(statement.vendor, statement.page)
        messages = messages_about(case, case.alone if is_off else page_rules(example))
    assert any(example.text in message for message in messages), messages


@pytest.mark.parametrize("example", examples("clean"), ids=str)
def test_a_rule_is_silent_because_of_the_settings(example: Example) -> None:
    case = CASES[example.answer, example.name]
    rules = page_rules(example)
    assert messages_about(case, rules) == []
    without = default_policy().rule_set().restricted_to([example.answer])
    elsewhere = copy.deepcopy(case.manifest)
    elsewhere["metadata"]["namespace"] = "elsewhere"
    assert messages_about(case, without) or case.check(elsewhere, rules).findings


@pytest.mark.parametrize("example", examples("commands"), ids=str)
def test_a_command_shows_what_breaks_the_statement(
    example: Example, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example.text
    _, *arguments = example.answer.split()
    if {"cgpu", "why"}.isdisjoint(arguments):  # these read no profile
        policy = tmp_path / "gpuward.yaml"
        policy.write_text(policy_text(example.statement.vendor, example.statement.page))
        arguments += ["--policy", str(policy)]
    main([*arguments, "-f", str(FOLDER / example.name)])
    assert example.text in " ".join(capsys.readouterr().out.split())


def page_rules(example: Example) -> RuleSet:
    statement = example.statement
    return policy_of(statement.vendor, statement.page).restricted_to([example.answer])


def messages_about(case: Case, rules: RuleSet) -> list[str]:
    return [finding.message for finding in case.check(case.manifest, rules).findings]


def test_every_file_with_an_example_is_used() -> None:
    used = {example.name for key in ("rules", "commands") for example in examples(key)}
    assert {file.name for file in FOLDER.iterdir()} <= used


def test_the_index_counts_the_statements() -> None:
    text = (DOCS / "vendors/README.md").read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| all |")]
    (numbers,) = (list(map(int, re.findall(r"\d+", row))) for row in rows)
    assert numbers[0] == len(STATEMENTS) == sum(numbers[1:])
    assert numbers[3] == sum(not statement.content.keys() & ANSWERS for statement in STATEMENTS)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_a_statement_of_a_vendor_or_a_public_source(name: str) -> None:
    answered = any(name in statement.content.get("rules", ()) for statement in STATEMENTS)
    assert answered or SOURCE.search(RULES[name].documentation.get("References", ""))
