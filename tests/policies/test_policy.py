"""Tests of policies: mistakes are reported with their line, and every setting has its effect."""

from __future__ import annotations

import datetime
import re
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest

from policies.loading import PolicyError, default_policy, load_policy
from policies.policy import SECURITY_FAMILIES, Policy, RuleSettings, parse_catalog_version
from rules.catalog.index import CATALOG
from rules.engine.fixing import check, fix
from rules.engine.rule_set import ActiveRule, PolicyException
from rules.finding import Action, Finding, FixScope
from rules.objects.kubernetes_objects import Quota
from rules.objects.object_ref import ObjectRef
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.rule import Rule
from tests.testkit.cases import TODAY
from tests.testkit.paths import ROOT
from tests.testkit.policy_mistakes import (
    MISTAKES,
    OTHER_RULE,
    POLICY_HEADER,
    SECURITY_RULE,
    exception,
)

CONTEXT = Context(TODAY)


def policy(text: str) -> Policy:
    return load_policy(POLICY_HEADER + text, "p.yaml")


def error_lines(text: str) -> list[str]:
    with pytest.raises(PolicyError) as error:
        load_policy(text, "p.yaml")
    return str(error.value).splitlines()


@pytest.mark.parametrize(("text", "place", "says"), MISTAKES)
def test_a_mistake_is_reported_with_its_line_and_remedy(text: str, place: str, says: str) -> None:
    first = error_lines(POLICY_HEADER + text)[0]
    assert first.startswith(f"p.yaml:{place}: "), first
    assert says in first


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "p.yaml: the file is empty; a policy begins with"),
        ("# nothing but this\n---\n", "p.yaml: the file is empty"),
        ("[1, 2]", "p.yaml:1:1: this should be an object and is [1, 2]"),
        ("hello", 'p.yaml:1:1: this should be an object and is "hello"'),
        ("apiVersion: gpuward.io/v1", "p.yaml:1:1: the key 'kind' is missing"),
        ("apiVersion: v1\nkind: Policy", 'p.yaml:1:1: this should be gpuward.io/v1 and is "v1"'),
    ],
)
def test_a_text_that_is_no_policy_is_refused(text: str, says: str) -> None:
    assert error_lines(text)[0].startswith(says)


@pytest.mark.parametrize(
    "text",
    [
        POLICY_HEADER + "rules: " + "[" * 5000,
        "".join(f"{' ' * depth}a:\n" for depth in range(500)),
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdef")),
        "#" * (1 << 21),
        "a: " + "x" * (1 << 21),
        POLICY_HEADER + "rules:\n" + "".join(f"  no-rule-{n}: {{}}\n" for n in range(20_000)),
        POLICY_HEADER + "".join(f"no-key-{n}: 1\n" for n in range(20_000)),
        POLICY_HEADER + "exceptions:\n" + "- 7\n" * 20_000,
        POLICY_HEADER + "profiles: [" + "{name: Bad}, " * 10_000 + "]\n",
        POLICY_HEADER + "---\n" * 200_000,
    ],
)
def test_a_huge_policy_ends_in_a_short_error(text: str) -> None:
    try:
        load_policy(text, "p.yaml")
    except PolicyError as error:
        lines = str(error).splitlines()
        assert len(lines) <= 21
        assert all(len(line) < 300 for line in lines)
    else:
        assert text.startswith(POLICY_HEADER + "---")


def test_mistakes_are_listed_in_the_order_of_the_text() -> None:
    text = f"rules: {{{SECURITY_RULE}: {{action: 1, fix: 2}}}}\nworkloads: 3\nsome: 4\n"
    places = [line.split(": ")[0] for line in error_lines(POLICY_HEADER + text)]
    assert places == ["p.yaml:3:31", "p.yaml:3:42", "p.yaml:4:1", "p.yaml:5:1"]
    assert error_lines(POLICY_HEADER + "exceptions:\n" + "- 7\n" * 30)[-1] == "and more"


def test_each_missing_key_is_named() -> None:
    lines = error_lines("rules: {}\nexceptions: [{rules: [gpu-namespace]}]\n")
    missing = [line.partition("the key ")[2] for line in lines]
    assert missing == [f"'{key}' is missing" for key in ("apiVersion", "kind", "match", "reason")]


def test_a_mistake_of_the_form_hides_no_other_mistake() -> None:
    text = f"""
workloads: 3
rules:
  {SECURITY_RULE}: {{action: never}}
  no-rule: {{action: deny}}
profiles: [{{name: our-cluster, components:
  [{{namespaces: [a], serviceAccounts: [b], rules: [no-other]}}]}}]
exceptions: [{{rules: [gpu-namespace], match: {{image: a}}, reason: b}}]
"""
    found = "\n".join(error_lines(POLICY_HEADER + text))
    for says in ("is 3", '"never"', "'no-rule'", "no-other", "alone proves nothing"):
        assert says in found, found


@pytest.mark.parametrize("rule", [r.name for r in CATALOG if r.family in SECURITY_FAMILIES])
def test_an_exception_to_a_security_rule_names_a_namespace(rule: str) -> None:
    for match in ("{name: a}", "{serviceAccount: a, image: b}", '{namespace: "*", name: a}'):
        assert (
            f"an exception to {rule} must name a namespace"
            in error_lines(POLICY_HEADER + exception(match, rule=rule))[0]
        )
    assert (
        f"an exception to {rule}"
        in error_lines(POLICY_HEADER + exception('{namespace: [a, "**"], name: a}', rule=rule))[0]
    )
    assert policy(exception('{namespace: "team-*"}', rule=rule)).exceptions


@pytest.mark.parametrize(
    "match",
    [
        *("{image: a}", "{container: a}", "{image: a, container: b}", "{image: a, kind: Pod}"),
        *('{image: a, name: "*"}', '{container: a, namespace: "*"}'),
    ],
)
def test_an_exception_needs_more_than_fields_that_tenants_write(match: str) -> None:
    assert "alone proves nothing" in error_lines(POLICY_HEADER + exception(match))[0]


def test_an_exception_that_fits_everything_is_refused() -> None:
    assert "matches every object" in error_lines(POLICY_HEADER + exception('{name: "*"}'))[0]


@pytest.mark.parametrize(
    "match", ["{namespace: a}", "{serviceAccount: a}", "{kind: A}", "{name: a, image: b}"]
)
def test_other_exceptions_are_accepted(match: str) -> None:
    assert policy(exception(match)).exceptions


def test_every_key_of_a_policy_is_loaded() -> None:
    loaded = policy(
        f"""catalog: "0.1"
profiles: [ack, {{name: own, resources: {{x.com/gpu: {{vendor: x}}}}}}]
rules:
  {SECURITY_RULE}: {{action: warn, fix: true, suppressible: false}}
  {OTHER_RULE}: {{action: "off", fix: false, options: {{max_devices: 3}}}}
exceptions:
- rules: [{SECURITY_RULE}, {OTHER_RULE}]
  reason: why
  expires: 2030-06-15
  match: {{namespace: [a, b*], kind: K, name: job, serviceAccount: s, image: i, container: c}}
onRuleError: deny
workloads: fix
voidEveryContainer: true
"""
    )
    assert loaded.catalog == "0.1"
    assert loaded.profile.name == "ack+own"
    assert loaded.rules == {
        SECURITY_RULE: RuleSettings(Action.WARN, fix=True, suppressible=False),
        OTHER_RULE: RuleSettings(Action.OFF, fix=False, options={"max_devices": 3}),
    }
    assert loaded.exceptions == (
        PolicyException(
            rules=(SECURITY_RULE, OTHER_RULE),
            reason="why",
            expires=datetime.date(2030, 6, 15),
            namespaces=("a", "b*"),
            kinds=("K",),
            names=("job",),
            service_accounts=("s",),
            images=("i",),
            containers=("c",),
        ),
    )
    assert (loaded.on_rule_error, loaded.workloads) == ("deny", "fix")
    assert loaded.void_every_container


@pytest.mark.parametrize("text", ["", "rules: {}\nexceptions: []\n", "---\n"])
def test_an_empty_policy_is_the_default_policy(text: str) -> None:
    loaded, default = policy(text), default_policy()
    assert loaded._replace(profile=default.profile) == default
    assert loaded.profile.name == default.profile.name
    assert loaded.profile.resources == default.profile.resources
    assert load_policy("---\n" + POLICY_HEADER, "p.yaml").profile.name == default.profile.name


def test_profiles_of_the_command_line_replace_those_of_the_policy() -> None:
    text = POLICY_HEADER + "profiles: [{name: own, extends: [nvidia]}, amd]\n"
    assert load_policy(text, "p.yaml").profile.name == "own+amd"
    assert load_policy(text, "p.yaml", ["gke"]).profile.name == "gke"
    # The profiles that the policy defines can be named there too.
    assert load_policy(text, "p.yaml", ["own"]).profile.name == "own"
    with pytest.raises(PolicyError, match='did you mean "nvidia"'):
        load_policy(text, "p.yaml", ["nvidai"])
    with pytest.raises(PolicyError, match='did you mean "nvidia"'):
        default_policy(["nvidai"])


def nothing(_pod: Pod, _context: Context) -> list[Finding]:
    return []


def rule(since: str = "0.1", **facts: Any) -> Rule[Pod]:
    fields = {"needs": (), **facts}
    return Rule(
        name="fake",
        summary="a fake",
        subject=Pod,
        action=Action.DENY,
        since=since,
        check=nothing,
        **fields,
    )


def activated(monkeypatch: pytest.MonkeyPatch, made: Rule[Pod], **facts: Any) -> list[ActiveRule]:
    monkeypatch.setattr("policies.policy.CATALOG", (made,))
    settings = {"fake": facts.pop("settings", RuleSettings())}
    return list(Policy(Profile("p"), rules=settings, **facts).rule_set().rules)


@pytest.mark.parametrize(
    ("since", "catalog", "is_newer"),
    [
        ("0.2", "0.1", True),
        ("0.10", "0.9", True),
        ("1", "0.9.9", True),
        ("0.1.1", "0.1", True),
        ("0.1", "0.1", False),
        ("0.1.0", "0.1", False),
        ("0.1", "0.1.0", False),
        ("1.0", "1", False),
        ("0.9", "0.10", False),
        ("0.1", "99", False),
        ("99", None, False),
    ],
)
def test_a_rule_that_is_newer_than_the_catalog_only_audits(
    monkeypatch: pytest.MonkeyPatch, since: str, catalog: str | None, *, is_newer: bool
) -> None:
    settings = RuleSettings(Action.DENY, fix=True)
    made = activated(monkeypatch, rule(since), catalog=catalog, settings=settings)
    expected = (Action.AUDIT, FixScope.NONE) if is_newer else (Action.DENY, FixScope.ALL)
    assert [(active.action, active.fix_scope) for active in made] == [expected]


def test_off_is_off_for_a_newer_rule_too(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = RuleSettings(Action.OFF)
    assert activated(monkeypatch, rule("0.2"), catalog="0.1", settings=settings) == []


@pytest.mark.parametrize(
    ("value", "scope"), [(None, FixScope.SAFE), (True, FixScope.ALL), (False, FixScope.NONE)]
)
def test_which_fixes_are_made(
    monkeypatch: pytest.MonkeyPatch, scope: FixScope, *, value: bool | None
) -> None:
    made = activated(monkeypatch, rule(), settings=RuleSettings(fix=value))
    assert [active.fix_scope for active in made] == [scope]


def test_options_are_the_defaults_and_what_the_policy_says(monkeypatch: pytest.MonkeyPatch) -> None:
    made = rule(options=MappingProxyType({"a": 1, "b": 2}))
    settings = RuleSettings(options={"b": 3}, suppressible=False)
    (active,) = activated(monkeypatch, made, settings=settings)
    assert active.options == {"a": 1, "b": 3}
    assert not active.suppressible


@pytest.mark.parametrize("value", ["false", "true"])
def test_void_every_container_reaches_its_rule(value: str) -> None:
    names = {"image-default-all"}
    (active,) = policy(f"voidEveryContainer: {value}\n").rule_set().restricted_to(names).rules
    assert active.options["every_container"] is (value == "true")


def test_restricted_to_keeps_the_named_rules_in_order() -> None:
    all_rules = default_policy().rule_set()
    restricted = all_rules.restricted_to([OTHER_RULE, SECURITY_RULE, "no-such-rule"])
    assert [active.rule.name for active in restricted.rules] == [SECURITY_RULE, OTHER_RULE]
    assert (restricted.profile, restricted.exceptions) == (all_rules.profile, all_rules.exceptions)


def test_versions() -> None:
    assert parse_catalog_version("0.10") > parse_catalog_version("0.9")
    assert parse_catalog_version("1") == parse_catalog_version("1.0.0")
    with pytest.raises(ValueError, match="x"):
        parse_catalog_version("1.x")


REF = ObjectRef("Job", "batch", "team-a", "train")
POD = Pod(
    REF,
    Profile("p"),
    spec=({"containers": [{"name": "main", "image": "r.io/app:1"}]}, ("spec",)),
    metadata=({}, ("metadata",)),
    stable_path="spec",
)
(MAIN,) = POD.containers
FOUND = Finding(path=("spec",), key="key", message="message", container=MAIN, rule="r", object=REF)


@pytest.mark.parametrize(
    ("field", "fits", "fails"),
    [
        ("rules", ("q", "r"), ("q",)),
        ("namespaces", ("x", "team-*"), ("team",)),
        ("kinds", ("Job",), ("job",)),
        ("names", ("*",), ("tra",)),
        ("service_accounts", ("robot",), ("default",)),
    ],
)
def test_an_exception_matches_on_each_field(
    field: str, fits: tuple[str, ...], fails: tuple[str, ...]
) -> None:
    accepted = PolicyException(rules=("r",), reason="why")
    assert accepted.covers(FOUND, "robot")
    assert accepted._replace(**{field: fits}).covers(FOUND, "robot")  # type: ignore[arg-type]
    assert not accepted._replace(**{field: fails}).covers(FOUND, "robot")  # type: ignore[arg-type]


def test_an_exception_covers_no_finding_without_an_object() -> None:
    accepted = PolicyException(rules=("r",), reason="why", namespaces=("team-a",))
    assert accepted.covers(FOUND, "default")
    assert not accepted.covers(FOUND._replace(object=None), "default")


MAIN_ONLY: dict[str, Any] = {"name": "main", "image": "r.io/app:1"}
OTHER_IMAGE: dict[str, Any] = {"name": "main-2", "image": "r.io/other:1"}
MOUNT = {"volumeMounts": [{"name": "dev", "mountPath": "/dev"}]}


def is_excepted(match: str, rule: str, *containers: dict[str, Any]) -> bool:
    """Return whether an exception accepts what `rule` finds in a GPU pod of `containers`."""
    accepting = policy(exception(match, rule=rule)).rule_set().restricted_to([rule])
    gpu = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    spec = {
        "hostIPC": True,
        "containers": [containers[0] | gpu, *containers[1:]],
        "volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"}}
    result = check({**pod, "spec": spec}, accepting, CONTEXT)
    assert len(result.findings) + len(result.excepted) == 1
    return bool(result.excepted)


@pytest.mark.parametrize(
    "pattern", ['image: "r.io/app:*"', "container: main", 'image: "*app*", container: main']
)
def test_an_exception_fits_every_container_that_a_finding_concerns(pattern: str) -> None:
    match = f"{{namespace: a, {pattern}}}"
    volume, whole_pod = "device-hostpath", "host-namespaces"
    assert is_excepted(match, volume, MAIN_ONLY | MOUNT)
    # Another container does not see the volume, but it is in the pod.
    assert is_excepted(match, volume, MAIN_ONLY | MOUNT, OTHER_IMAGE)
    assert not is_excepted(match, volume, MAIN_ONLY | MOUNT, OTHER_IMAGE | MOUNT)
    assert is_excepted(match, whole_pod, MAIN_ONLY)
    assert not is_excepted(match, whole_pod, MAIN_ONLY, OTHER_IMAGE)


def test_the_example_in_the_documents_accepts_what_it_says() -> None:
    text = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(exceptions:\n.*?)```", text, re.DOTALL)
    accepting = policy(example).rule_set()
    container = {
        "name": "test",
        "image": "registry.example.com/nccl-tests:1",
        "securityContext": {"privileged": True},
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "nccl-tests"},
        "spec": {
            "serviceAccountName": "fabric-tester",
            "hostIPC": True,
            "containers": [container],
        },
    }
    assert set(check(pod, accepting, CONTEXT).excepted) == {"privileged-gpu", "host-namespaces"}


def test_an_exception_is_valid_until_the_end_of_its_last_day() -> None:
    accepted = PolicyException(rules=("r",), reason="why", expires=TODAY)
    assert not accepted.has_expired(TODAY)
    assert accepted.has_expired(TODAY + datetime.timedelta(days=1))
    assert not accepted._replace(expires=None).has_expired(datetime.date.max)


def bad_pod(namespace: str) -> dict[str, Any]:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    container = {"name": "main", "image": "r.io/app:1", "env": env}
    metadata = {"name": "p", "namespace": namespace}
    spec = {"containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_an_excepted_finding_is_neither_reported_nor_fixed_but_counted() -> None:
    text = f"rules: {{{SECURITY_RULE}: {{fix: true}}}}\n" + exception(
        "{namespace: a}", rule=SECURITY_RULE
    )
    accepting = policy(text).rule_set().restricted_to([SECURITY_RULE])
    result = check(bad_pod("a"), accepting, CONTEXT)
    assert (result.findings, result.excepted) == ([], [SECURITY_RULE])
    assert result.used_exceptions == set(accepting.exceptions)
    assert fix(bad_pod("a"), accepting, CONTEXT).operations == []
    elsewhere = check(bad_pod("b"), accepting, CONTEXT)
    assert (len(elsewhere.findings), elsewhere.excepted) == (1, [])
    assert not elsewhere.used_exceptions
    assert fix(bad_pod("b"), accepting, CONTEXT).operations


def test_an_expired_exception_accepts_nothing() -> None:
    text = exception("{namespace: a}", rule=SECURITY_RULE, more=f"  expires: {TODAY}\n")
    accepting = policy(text).rule_set().restricted_to([SECURITY_RULE])
    assert not check(bad_pod("a"), accepting, CONTEXT).findings
    tomorrow = Context(TODAY + datetime.timedelta(days=1))
    result = check(bad_pod("a"), accepting, tomorrow)
    assert (len(result.findings), result.excepted) == (1, [])
    assert not result.used_exceptions


def test_quotas_are_excepted_without_a_service_account() -> None:
    quota = Quota(REF._replace(kind="ResourceQuota"), Profile("p"), {})
    found = FOUND._replace(container=None, object=quota.object)
    assert PolicyException(("r",), "why", kinds=("ResourceQuota",)).covers(found, "")
    assert not PolicyException(("r",), "why", service_accounts=("a",)).covers(found, "")
