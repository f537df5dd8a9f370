"""The command `gpuward export`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from policies.loading import default_policy, load_policy
from policies.policy import Policy
from rules.engine.rule_set import ActiveRule
from rules.finding import Action
from rules.in_process.bounds import MAX_COUNTS
from rules.objects.pod import Pod
from tests.testkit.paths import ROOT
from tests.testkit.policy_mistakes import POLICY_HEADER
from webhook.in_process.cli import MAX_ANNOTATION_BYTES, annotation_bytes, main
from webhook.in_process.fixes import fix_objects
from webhook.in_process.objects import ExportOptions, policy_objects
from webhook.in_process.statements import (
    exported_rules,
    fixing_rules,
    left_out,
    reason_against,
    reason_against_fix,
)
from webhook.registration import RegistrationOptions

ABOUT_PODS = [a for a in default_policy().rule_set().rules if a.rule.subject is Pod]
RULES = default_policy().rule_set().rules
FIXING = fixing_rules(default_policy().rule_set())


def test_every_rule_about_pods_is_exported_or_says_why_not() -> None:
    undecided = [a.rule.name for a in ABOUT_PODS if "not written" in reason_against(a.rule)]
    assert undecided == []
    assert len([a for a in ABOUT_PODS if not reason_against(a.rule)]) >= 25


@pytest.mark.parametrize("active", ABOUT_PODS, ids=lambda active: active.rule.name)
def test_the_page_says_what_is_exported_of_each_rule(active: ActiveRule) -> None:
    page = (ROOT / "docs/in-process.md").read_text(encoding="utf-8")
    name, missing = f"`{active.rule.name}`", "; ".join(left_out(active, default_policy().profile))
    if reason := reason_against(active.rule):
        rows = [line for line in page.splitlines() if line.startswith(f"| {reason} | ")]
        assert [name in row for row in rows] == [True]
    elif missing:
        assert f"| {name} | {missing} |" in page
    else:
        _, _, whole = page.partition("these are exported whole:")
        assert name in whole.partition(".\n")[0]


@pytest.mark.parametrize("number", [*MAX_COUNTS.values(), 256])
def test_the_page_has_the_bounds(number: int) -> None:
    assert f"{number:,}" in (ROOT / "docs/in-process.md").read_text(encoding="utf-8")


# The Common Expression Language, and the libraries that Kubernetes adds to it:
# https://kubernetes.io/docs/reference/using-api/cel/
FUNCTIONS = frozenset(
    {
        *("all", "exists", "filter", "map", "transformList", "has", "size", "dyn", "string"),
        *("contains", "endsWith", "startsWith", "matches", "find", "findAll", "timestamp"),
        *("hasValue", "orValue", "or", "optional.of", "optional.none"),
        *("indexOf", "lastIndexOf", "join", "replace", "split", "substring", "trim"),
        *("lowerAscii", "upperAscii", "min", "max", "sum", "isSorted", "distinct", "flatten"),
        *("reverse", "quantity", "isInteger", "sign", "escapeKey"),
    }
)


def opt_in_policy() -> Policy:
    """A policy that turns on the rules that are off by default, with what they need."""
    return load_policy(
        """
        apiVersion: gpuward.io/v1
        kind: Policy
        profiles: [nvidia, amd, intel]
        rules:
          gpu-node-without-request: {action: deny, options: {nodes: [zone=a, example.com/pool]}}
          gpu-namespace: {action: deny, options: {namespaces: [team-*], labels: [team=ml]}}
          gpu-share-namespace: {action: deny, options: {namespaces: [team-*], labels: [team=ml]}}
        """,
        "a test",
    )


POLICIES = pytest.mark.parametrize(
    "policy", [default_policy(), opt_in_policy()], ids=["default", "opt-in"]
)


@POLICIES
def test_expressions_call_functions_that_there_are(policy: Policy) -> None:
    """An expression takes any name for that of a method; only an API server notices."""
    options = ExportOptions()
    texts = {
        variable["expression"]
        for made in (*policy_objects(policy, options), *fix_objects(policy, options))
        for variable in made["spec"].get("variables", ())
    }
    called = {name for text in texts for name in re.findall(r"(\w+)\(", unquoted(text))}
    assert called - FUNCTIONS == set()


@POLICIES
def test_expressions_name_members_that_containers_and_variables_have(policy: Policy) -> None:
    """`c` is a container and `v` one of its variables wherever they have a member."""
    options = ExportOptions()
    made = [*policy_objects(policy, options), *fix_objects(policy, options)]
    listed = [variable for each in made for variable in each["spec"].get("variables", ())]
    variables = {variable["name"]: variable["expression"] for variable in listed}
    of_containers = members(variables["containers"])
    of_variables = members(variables["withVariables"]) - of_containers | {"name"}
    found = " ".join(unquoted(variable["expression"]) for variable in listed)
    assert {*re.findall(r"\bc\.(\w+)\b(?!\()", found)} <= of_containers
    assert {*re.findall(r"\bv\.(\w+)\b(?!\()", found)} <= of_variables


def members(text: str) -> set[str]:
    """The members of the records that `text` makes, in which each value is `dyn`."""
    return {*re.findall(r'"(\w+)": dyn\(', text)}


@POLICIES
def test_expressions_name_variables_that_there_are(policy: Policy) -> None:
    """A policy has no variable that it does not define, as an API server would refuse it."""
    options = ExportOptions()
    for made in (*policy_objects(policy, options), *fix_objects(policy, options)):
        defined: set[str] = set()
        for variable in made["spec"].get("variables", ()):
            named = {*re.findall(r"(?<![.\w])variables\.(\w+)", unquoted(variable["expression"]))}
            assert named <= defined, variable["name"]
            defined.add(variable["name"])


def test_no_expression_takes_api_servers_long_to_compile() -> None:
    """The time to compile an expression grows with the square of its calls."""
    variables = [
        variable
        for made in policy_objects(default_policy(), ExportOptions())
        for variable in made["spec"].get("variables", ())
    ]
    lengths = {each["name"]: len(unquoted(each["expression"])) for each in variables}
    assert {name: length for name, length in lengths.items() if length > 6_000} == {}


def unquoted(text: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)


def test_the_objects_fit_into_the_annotation_of_kubectl_apply(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["vap", "--profile", "nvidia"]) == 0

    captured = capsys.readouterr()
    objects = list(yaml.load_all(captured.out, yaml.CSafeLoader))
    assert len(objects) == 40
    assert max(map(annotation_bytes, objects)) < MAX_ANNOTATION_BYTES
    assert captured.err == ""


@pytest.mark.parametrize(
    ("character", "size"),
    [("a", 1), ("é", 2), ("<", 6), (">", 6), ("&", 6), ("\u2028", 6), ("\u2029", 6), ("\n", 2)],
)
def test_the_copy_of_kubectl_apply_is_as_large_as_go_writes_it(character: str, size: int) -> None:
    sizes = [
        annotation_bytes({"metadata": {"name": "a"}, "spec": {"text": character * number}})
        for number in (1, 2)
    ]
    assert sizes[1] - sizes[0] == size


EXPORTED = [rule.name for rule in exported_rules(default_policy().rule_set())]


def policy_with_exceptions(number: int, rules: Sequence[str] = EXPORTED) -> str:
    return "apiVersion: gpuward.io/v1\nkind: Policy\nexceptions:\n" + "".join(
        f"  - {{rules: [{', '.join(rules)}], reason: a test, match: {{namespace: team-{n}, "
        f'serviceAccount: agent-{n}, image: "registry.example.com/team-{n}/*"}}}}\n'
        for n in range(number)
    )


def test_eight_exceptions_to_two_rules_still_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(policy_with_exceptions(8, EXPORTED[:2]))
    assert main(["vap", "--policy", str(tmp_path / "policy.yaml")]) == 0
    assert capsys.readouterr().err == ""


def test_a_policy_that_is_too_large_for_apply_says_how_to_apply_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(policy_with_exceptions(100))
    assert main(["vap", "--policy", str(tmp_path / "policy.yaml")]) == 0
    captured = capsys.readouterr()
    assert "kubectl apply --server-side" in captured.err
    assert len(list(yaml.load_all(captured.out, yaml.CSafeLoader))) == 40


def test_a_policy_that_no_api_server_accepts_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(policy_with_exceptions(2_500, EXPORTED[:1]))
    assert main(["vap", "--policy", str(tmp_path / "policy.yaml")]) == 2
    captured = capsys.readouterr()
    assert "the policy has 2,500 exceptions" in captured.err
    assert captured.out == ""


def test_a_policy_says_in_its_description_what_it_leaves_out() -> None:
    made = next(iter(policy_objects(default_policy(), ExportOptions())))
    text = made["metadata"]["annotations"]["kubernetes.io/description"]
    assert "run-gpu-command: it reads command lines" in text
    assert "device-list-mount: a path with more than eight" in text


@pytest.mark.parametrize(
    ("other_devices", "words"),
    [
        ([], "and a claim counts as one for a GPU"),
        (
            ["deviceclass.resource.kubernetes.io/*"],
            "and no claim and no class of a cluster counts as one for a GPU",
        ),
    ],
    ids=["every-claim-counts", "no-claim-counts"],
)
def test_a_policy_says_how_it_counts_claims(other_devices: list[str], words: str) -> None:
    options = {"other_devices": other_devices}
    rules = {"gpu-node-without-request": {"action": "deny", "options": options}}
    text = {"apiVersion": "gpuward.io/v1", "kind": "Policy", "rules": rules}
    made = policy_objects(load_policy(json.dumps(text), "a test"), ExportOptions())
    described = [each["metadata"].get("annotations", {}) for each in made]
    assert any(words in each.get("kubernetes.io/description", "") for each in described)


def test_the_bindings_are_for_the_modes_of_the_options() -> None:
    registration = RegistrationOptions(default=Action.DENY, minimum=Action.WARN)
    objects = policy_objects(default_policy(), ExportOptions(registration))
    bindings = [o for o in objects if o["kind"] == "ValidatingAdmissionPolicyBinding"]
    actions = {o["metadata"]["name"]: o["spec"]["validationActions"] for o in bindings}
    assert actions["gpuward-bypass-deny-in-mode-deny"] == ["Deny"]
    assert actions["gpuward-bypass-deny-in-mode-warn"] == ["Warn"]
    assert actions["gpuward-bypass-deny-in-mode-deny-workloads"] == ["Warn"]
    assert not any(name.endswith("-in-mode-audit") for name in actions)


def _match_conditions(profile: dict[str, object]) -> dict[str, str]:
    """The conditions of the policies whose policy has a profile of its own, by name."""
    own = {"name": "ours", "extends": ["nvidia"], **profile}
    text = {"apiVersion": "gpuward.io/v1", "kind": "Policy", "profiles": [own]}
    made = policy_objects(load_policy(json.dumps(text), "a test"), ExportOptions())
    return {
        each["metadata"]["name"]: each["spec"]["matchConditions"][0]["expression"]
        for each in made
        if "matchConditions" in each["spec"]
    }


def test_the_match_conditions_are_of_pods_and_know_the_profiles_of_the_policy() -> None:
    found = _match_conditions({"alternativeVariables": ["OUR_CARDS"]})
    assert len(found) == 9
    assert all(text.startswith('request.kind.kind != "Pod" || (') for text in found.values())
    for name in ("gpuward-bypass-deny", "gpuward-bypass-warn"):
        assert '"OUR_CARDS"' in found[name]
    # Its rules are about privileged containers only.
    assert "image" not in found["gpuward-security-deny"]
    assert not any("%" in text for text in found.values())


def test_with_too_many_names_of_its_own_a_policy_is_evaluated_for_every_pod() -> None:
    assert _match_conditions({"alternativeVariables": [f"OUR_CARD_{n}" for n in range(200)]}) == {}


def test_a_rule_that_is_off_is_not_exported() -> None:
    text = "apiVersion: gpuward.io/v1\nkind: Policy\nrules: {mig-admin-env: {action: 'off'}}\n"
    names = {rule.name for rule in exported_rules(load_policy(text, "a test").rule_set())}
    assert "mig-admin-env" not in names
    assert "visible-devices-env" in names


def test_explain_lists_every_rule_with_what_becomes_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["vap", "--explain", "--profile", "nvidia"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("visible-devices-env" in line and line.endswith("  exported") for line in lines)
    assert any("claim-layout" in line and "other objects than pods" in line for line in lines)


def test_explain_says_of_each_fix_whether_it_is_exported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = "apiVersion: gpuward.io/v1\nkind: Policy\nrules: {request-only: {fix: false}}\n"
    (tmp_path / "policy.yaml").write_text(text)
    policy = str(tmp_path / "policy.yaml")
    assert main(["map", "--explain", "--policy", policy]) == 0
    found = {
        name: fix
        for name, _, fix in (
            line.strip().partition("  ") for line in capsys.readouterr().out.splitlines()
        )
    }
    assert found["visible-devices-env"].strip() == "fixed"
    assert found["request-only"].strip() == "not fixed: the policy makes no fix of it"
    assert "the profiles of the policy say nothing" in found["scheduler-name"]
    assert found["privileged-gpu"].strip() == "not fixed: only the webhook makes this fix"
    assert found["nodename-pinned"].strip() == "not fixed: it has no fix"


def test_both_kinds_are_written_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vap", "map"]) == 0
    both = list(yaml.load_all(capsys.readouterr().out, yaml.CSafeLoader))
    assert len(both) == 42
    assert main(["map"]) == 0
    fixes = list(yaml.load_all(capsys.readouterr().out, yaml.CSafeLoader))
    assert [made["kind"] for made in fixes] == [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ]
    assert both[-2:] == fixes
    assert max(map(annotation_bytes, fixes)) < MAX_ANNOTATION_BYTES


def test_a_policy_without_fixes_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rules = ", ".join(f"{rule.name}: {{fix: false}}" for rule in FIXING)
    text = f"apiVersion: gpuward.io/v1\nkind: Policy\nrules: {{{rules}}}\n"
    (tmp_path / "policy.yaml").write_text(text)
    assert main(["map", "--policy", str(tmp_path / "policy.yaml")]) == 2
    captured = capsys.readouterr()
    assert (captured.out, "has nothing that can be exported" in captured.err) == ("", True)


def test_the_page_names_what_is_fixed() -> None:
    page = (ROOT / "docs/in-process.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## Fixes")
    section, _, _ = section.partition("\n## ")
    named = set(re.findall("^\\| `([a-z-]+)` \\|", section, re.MULTILINE))
    assert named == {active.rule.name for active in RULES if not reason_against_fix(active.rule)}


def test_a_default_mode_below_the_minimum_is_wrong_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["vap", "--mode", "warn", "--minimum-mode", "deny"])
    assert stopped.value.code == 2
    assert "--mode is weaker" in capsys.readouterr().err


def test_an_unknown_mode_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--mode", "--minimum-mode"):
        with pytest.raises(SystemExit) as stopped:
            main(["vap", option, "strict"])
        assert stopped.value.code == 2
        assert "invalid choice: 'strict'" in capsys.readouterr().err


def test_every_object_has_the_annotation_by_which_the_chart_knows_it() -> None:
    objects = list(policy_objects(default_policy(), ExportOptions()))
    assert all("gpuward.io/digest" in each["metadata"]["annotations"] for each in objects)


def test_a_missing_policy_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vap", "--policy", "missing.yaml"]) == 2
    assert "missing.yaml" in capsys.readouterr().err


def test_a_rule_about_every_pod_has_policies_of_its_own() -> None:
    """API servers would evaluate every other rule of its policies for each pod."""
    text = POLICY_HEADER + "profiles: [nvidia]\nrules: {gpu-node-without-request: {action: deny}}\n"
    for make, name in ((policy_objects, "every-pod-deny"), (fix_objects, "fixes-every-pod")):
        made = make(load_policy(text, "a test"), ExportOptions())
        policies = {
            each["metadata"]["name"]: each for each in made if "policyName" not in each["spec"]
        }
        without = {n for n, each in policies.items() if "matchConditions" not in each["spec"]}
        assert without == {f"gpuward-{name}"}
        assert len(policies) > 1
