"""Tests of the engine with artificial rules, both correct and faulty ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.base.json_values import Edit, append, pointer, put, remove
from rules.base.traits import (
    GPU_METADATA_KEY,
    GPU_RESOURCE,
    GPU_WORKLOAD,
    HOST_NAMESPACE,
    NODE,
    NODE_AGENT,
    NODE_CONSTRAINT,
    NODE_NAME,
)
from rules.engine.bounds import StepLimit, TooManyStepsError, steps_of
from rules.engine.evaluation import EvaluationResult, RuleFailure, introduced_findings
from rules.engine.fixing import FixResult, check, fix
from rules.engine.rule_set import ActiveRule, PolicyException, RuleSet
from rules.finding import Action, Finding, Fix, FixScope
from rules.gpu.components import DAEMON_SET_CONTROLLERS
from rules.objects.kubernetes_objects import KubernetesObject, Quota
from rules.objects.pod import MIRROR_ANNOTATION, Pod
from rules.profile.context import Context
from rules.profile.profile import Component, Profile, Resource
from rules.relevance.traits import profile_traits
from rules.rule import LazyCheck, Rule
from rules.workloads.discovery import find_subjects
from tests.testkit.cases import TODAY
from webhook.admission.enforcement import FIXED_ANNOTATION

CONTEXT = Context(TODAY, operation="CREATE")
CONTROLLER = DAEMON_SET_CONTROLLERS[0]
CREATORS = (*DAEMON_SET_CONTROLLERS, "operator")
PROFILE = Profile("p", components=(Component(("system",), ("agent",), CREATORS),))

Check = Callable[[Any, Context], Iterable[Finding]]


def active(
    name: str,
    body: Check,
    *,
    action: Action = Action.DENY,
    scope: FixScope = FixScope.ALL,
    subject: type[Pod | Quota | KubernetesObject] = Pod,
    **facts: Any,
) -> ActiveRule:
    rule: Rule[Any] = Rule(
        name=name,
        summary="a fake",
        subject=subject,
        action=Action.DENY,
        since="0.1",
        check=body,
        needs=(),
        **facts,
    )
    return ActiveRule(rule, action, scope, {"name": name}, suppressible=True)


def rule_set(*rules: ActiveRule, exceptions: tuple[PolicyException, ...] = ()) -> RuleSet:
    return RuleSet(rules, PROFILE, exceptions)


def find_field(field: str, *, fixable: bool = False, safe: bool = True, message: str = "") -> Check:
    """A check that finds `field` in every container; if `fixable`, its fix removes the field."""

    def body(pod: Pod, _context: Context) -> Iterator[Finding]:
        for container in pod.containers:
            if field in container.raw:
                path = (*container.path, field)
                removal = Fix(f"remove {field}", (remove(path),), safe) if fixable else None
                yield Finding(
                    path=path,
                    key=field,
                    message=message or f"has {field}",
                    container=container,
                    fix=removal,
                )

    return body


def edit_pod(*edits: Edit, key: str = "x") -> Check:
    """A check that finds one thing in the pod, with `edits` whose paths start at its spec."""

    def body(pod: Pod, _context: Context) -> Iterator[Finding]:
        if "fixed" not in pod.spec:
            own = tuple(edit._replace(path=(*pod.path, *edit.path)) for edit in edits)
            yield Finding(
                path=pod.path, key=key, message="wants edits", fix=Fix("edit", own, safe=True)
            )

    return body


def raise_after(body: Check, after: int = 0) -> Check:
    """A check that yields the first `after` findings of `body` and then raises."""

    def raising(subject: Any, context: Context) -> Iterator[Finding]:
        for number, finding in enumerate(body(subject, context)):
            if number == after:
                break
            yield finding
        raise RuntimeError("a bug")

    return raising


def pod(*containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    named = [{"name": f"c{number}", **c} for number, c in enumerate(containers)]
    metadata = {"name": "p", "namespace": "n", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": named}}


def quota() -> dict[str, Any]:
    metadata = {"name": "q", "namespace": "n"}
    hard = {"x": 1}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": hard},
    }


def run_check(manifest: Any, *rules: ActiveRule, **facts: Any) -> EvaluationResult:
    before = copy.deepcopy(manifest)
    result = check(manifest, rule_set(*rules), CONTEXT, **facts)
    assert manifest == before
    return result


def run_fix(manifest: Any, *rules: ActiveRule, **facts: Any) -> FixResult:
    before = copy.deepcopy(manifest)
    fixed = fix(manifest, rule_set(*rules), CONTEXT, **facts)
    assert manifest == before
    assert jsonpatch.apply_patch(manifest, copy.deepcopy(fixed.operations)) == fixed.manifest
    again = fix(fixed.manifest, rule_set(*rules), CONTEXT, **facts)
    assert again.manifest == fixed.manifest
    return fixed


def summaries(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.rule, finding.container_name, finding.key) for finding in findings]


def test_findings_carry_rule_object_action_and_identity() -> None:
    (finding,) = run_check(pod({"a": 1}), active("r", find_field("a", fixable=True))).findings
    assert finding.rule == "r"
    assert str(finding.object) == "Pod n/p"
    assert finding.stable_path == "spec"
    assert finding.action is Action.DENY
    assert finding.fixable
    assert finding.identity == "r|Pod./n/p|spec|c0|a"


def test_the_weaker_of_two_actions_counts() -> None:
    def body(pod: Pod, _context: Context) -> Iterator[Finding]:
        for action in (Action.AUDIT, Action.WARN, Action.DENY):
            yield Finding(path=pod.path, key=action.name, message="x", action=action)

    for cap in (Action.AUDIT, Action.WARN, Action.DENY):
        findings = run_check(pod({}), active("r", body, action=cap)).findings
        expected = [min(cap, own) for own in (Action.AUDIT, Action.WARN, Action.DENY)]
        assert [finding.action for finding in findings] == expected


def test_rules_see_their_own_options_and_the_profile() -> None:
    recorded = []

    def body(_pod: Pod, context: Context) -> Iterator[Finding]:
        recorded.append((context.options["name"], context.profile, context.today))
        yield from ()

    run_check(pod({}), active("one", body), active("two", body))
    assert recorded == [("one", PROFILE, TODAY), ("two", PROFILE, TODAY)]


def test_a_rule_runs_on_its_own_kind_of_subject() -> None:
    recorded = []

    def body(subject: Any, _context: Context) -> Iterator[Finding]:
        recorded.append(type(subject))
        yield from ()

    both = {"kind": "List", "items": [pod({}), quota()]}
    run_check(both, active("pods", body), active("quotas", body, subject=Quota))
    assert recorded == [Pod, Quota]


def test_rules_about_whole_objects_run_on_their_kinds_and_on_workloads_with_gpus() -> None:
    recorded = []

    def body(subject: KubernetesObject, _context: Context) -> Iterator[Finding]:
        recorded.append((subject.object.kind, subject.object.name))
        yield Finding(path=(*subject.path, "metadata"), key="x", message="x")

    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    gpu = pod({"resources": {"limits": {"gpu.example.com/card": 1}}})["spec"]
    workloads = [
        ("Deployment", "plain", pod({})["spec"]),
        ("Deployment", "gpu", gpu),
        ("DaemonSet", "component", {**gpu, "serviceAccountName": "agent"}),
        ("DaemonSet", "agent", {**pod({})["spec"], "volumes": [{"name": "v", "hostPath": {}}]}),
    ]
    items = [
        {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "system"},
            "spec": {"template": {"spec": spec}},
        }
        for kind, name, spec in workloads
    ]
    rules = [
        active(name, body, subject=KubernetesObject)._replace(needs=(needed,))
        for name, needed in (("node", NODE), ("gpu", GPU_WORKLOAD), ("agent", NODE_AGENT))
    ]
    pods = active("pods", find_field("absent"))._replace(needs=(GPU_RESOURCE,))
    profile = Profile(
        "p",
        resources={"gpu.example.com/card": Resource("gpu.example.com/card", "v")},
        components=PROFILE.components,
    )
    result = check(
        {"kind": "List", "items": [node, *items]},
        RuleSet((*rules, pods), profile),
        CONTEXT._replace(operation=None),
    )
    assert recorded == [("Node", "n"), ("Deployment", "gpu"), ("DaemonSet", "agent")]
    assert [f.path for f in result.findings] == [
        ("items", index, "metadata") for index in (0, 2, 4)
    ]
    assert (len(result.pod_paths), result.other_objects) == (4, 1)


def test_a_rule_runs_only_on_pods_with_the_traits_that_it_needs() -> None:
    recorded = []

    def body(pod: Pod, _context: Context) -> Iterator[Finding]:
        recorded.append(pod.object.name)
        yield from ()

    rule = active("r", body)._replace(needs=(NODE_NAME | NODE_CONSTRAINT, HOST_NAMESPACE))
    manifests = [pod({}, name=name) for name in ("neither", "one", "both")]
    manifests[1]["spec"] |= {"nodeName": "n"}
    manifests[2]["spec"] |= {"nodeSelector": {"a": "b"}, "hostPID": True}
    for manifest in manifests:
        run_check(manifest, rule)
    run_check({"kind": "List", "items": manifests}, rule)
    assert recorded == ["both", "both"]


def test_the_annotation_that_marks_fixed_pods_concerns_no_rule() -> None:
    recorded = []

    def body(pod: Pod, _context: Context) -> Iterator[Finding]:
        recorded.append(pod.object.name)
        yield from ()

    rule = active("r", body)._replace(needs=(GPU_METADATA_KEY,))
    run_check(pod({}, name="fixed", annotations={FIXED_ANNOTATION: "request-only"}), rule)
    assert not recorded
    run_check(pod({}, name="other", annotations={"example.com/gpu": "1"}), rule)
    assert recorded == ["other"]


def test_a_pod_without_edits_is_evaluated_once() -> None:
    recorded = []

    def body(pod: Pod, _context: Context) -> Iterator[Finding]:
        recorded.append(pod.object.name)
        yield from ()

    both = {"kind": "List", "items": [pod({"a": 1}), pod({}, name="untouched")]}
    run_fix(both, active("watching", body), active("fixing", find_field("a", fixable=True)))
    # Each pod once in each of two runs, and the fixed pod once more after the fix.
    assert recorded == ["p", "untouched", "p", "p", "untouched"]


def test_a_finding_keeps_its_container() -> None:
    limits = {"cpu": 1}
    (finding,) = run_check(
        pod({"a": 1, "resources": {"limits": limits}}), active("r", find_field("a"))
    ).findings
    container = finding.container
    assert container is not None
    assert (container.name, container.limits) == ("c0", limits)


def test_a_rule_that_raises_is_named_and_hides_nothing() -> None:
    rules = [
        active("first", find_field("a")),
        active("broken", raise_after(find_field("a", fixable=True), after=1)),
        active("last", find_field("b", fixable=True)),
    ]
    manifest = pod({"a": 1, "b": 1}, {"a": 1})
    result = run_check(manifest, *rules)
    assert [(f.rule, f.error) for f in result.failures] == [("broken", "RuntimeError: a bug")]
    assert summaries(result.findings) == [
        *(("first", "c0", "a"), ("first", "c1", "a")),
        *(("broken", "c0", "a"), ("last", "c0", "b")),
    ]
    assert [f.fixable for f in result.findings if f.rule == "broken"] == [False]
    # None of its edits is made; those of other rules are.
    fixed = run_fix(manifest, *rules)
    assert [operation["path"] for operation in fixed.operations] == ["/spec/containers/0/b"]
    assert [failure.rule for failure in fixed.remaining.failures] == ["broken"]


def test_a_rule_that_raises_about_every_pod_is_named_once() -> None:
    manifest = {"kind": "List", "items": [pod({"a": 1}), pod({"a": 1})]}
    result = run_check(manifest, active("broken", raise_after(find_field("a"), after=1)))
    assert [failure.rule for failure in result.failures] == ["broken"]
    assert len(result.findings) == 2


def test_a_rule_whose_module_fails_is_imported_once_and_named_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported: list[str] = []

    def fail(module: str) -> None:
        imported.append(module)
        raise OSError("no such library")

    monkeypatch.setattr("rules.rule.import_module", fail)
    broken = active("broken", LazyCheck("rules.catalog.broken"))
    manifest = {"kind": "List", "items": [pod({"a": 1}), pod({"a": 1})]}
    for _ in range(2):
        result = run_check(manifest, broken, active("other", find_field("a")))
        assert result.failures == [RuleFailure("broken", "OSError: no such library")]
        assert [finding.rule for finding in result.findings] == ["other", "other"]
    assert imported == ["rules.catalog.broken"]


def test_a_rule_that_raises_only_before_the_fix_is_still_named() -> None:
    def body(pod: Pod, _context: Context) -> Iterator[Finding]:
        if any("a" in container.raw for container in pod.containers):
            raise ValueError("only before")
        yield from ()

    fixed = run_fix(
        pod({"a": 1}), active("broken", body), active("fixing", find_field("a", fixable=True))
    )
    assert len(fixed.operations) == 1
    assert [failure.rule for failure in fixed.remaining.failures] == ["broken"]


def test_a_check_that_returns_none_is_a_failure() -> None:
    def body(_pod: Pod, _context: Context) -> Iterator[Finding]:
        return None  # type: ignore[return-value]

    assert run_check(pod({}), active("broken", body)).failures


@pytest.mark.parametrize(
    "edits",
    [
        [remove(("missing",))],
        [put(("containers", 7, "x"), 1)],
        [append(("containers", 0), 1)],
        [put(("a",), 1), put(("a",), 2)],
        [put(("containers",), []), remove(("containers", 0))],
        # The first edit fits, but either all edits are made or none.
        [put(("a",), 1), remove(("missing",))],
    ],
)
def test_edits_that_do_not_fit_are_dropped_with_their_rule(edits: list[Edit]) -> None:
    rules = [active("misfit", edit_pod(*edits)), active("good", find_field("a", fixable=True))]
    fixed = run_fix(pod({"a": 1}), *rules)
    assert fixed.manifest == pod({})
    assert [failure.rule for failure in fixed.remaining.failures] == ["misfit"]
    assert "EditError" in fixed.remaining.failures[0].error
    # Its finding remains.
    assert [finding.rule for finding in fixed.remaining.findings] == ["misfit"]


def test_edits_that_do_not_fit_leave_the_manifest_unchanged() -> None:
    manifest = pod({"a": 1})
    fixed = run_fix(manifest, active("misfit", edit_pod(remove(("missing",)))))
    assert fixed.manifest is manifest
    assert fixed.fixed == []
    assert [failure.rule for failure in fixed.remaining.failures] == ["misfit"]


def test_a_fix_that_does_not_resolve_its_finding_disables_only_its_rule() -> None:
    rules = [
        active("before", find_field("a", fixable=True)),
        active("useless", edit_pod(put(("useless",), 1))),
        active("after", find_field("b", fixable=True)),
    ]
    fixed = run_fix(pod({"a": 1, "b": 1}), *rules)
    assert fixed.manifest == pod({})
    assert [finding.rule for finding in fixed.fixed] == ["before", "after"]
    (failure,) = fixed.remaining.failures
    assert failure.rule == "useless"
    assert "does not resolve useless|Pod./n/p|spec||x" in failure.error
    assert [finding.rule for finding in fixed.remaining.findings] == ["useless"]


def test_a_fix_without_edits_is_a_failure() -> None:
    fixed = run_fix(pod({}), active("idle", edit_pod()))
    assert fixed.operations == []
    assert [failure.rule for failure in fixed.remaining.failures] == ["idle"]


def test_rules_that_undo_each_other_terminate() -> None:
    def wants(value: int) -> Check:
        def body(pod: Pod, _context: Context) -> Iterator[Finding]:
            if pod.spec.get("x") != value:
                edits = (put((*pod.path, "x"), value),)
                yield Finding(
                    path=pod.path,
                    key="x",
                    message=f"x is not {value}",
                    fix=Fix("set it", edits, safe=True),
                )

        return body

    fixed = run_fix(pod({}), active("one", wants(1)), active("two", wants(2)))
    assert [failure.rule for failure in fixed.remaining.failures] == ["one"]
    assert fixed.manifest["spec"]["x"] == 2  # type: ignore[call-overload, index]


def test_many_useless_rules_terminate() -> None:
    rules = [active(f"useless-{n}", edit_pod(put((f"x{n}",), 1), key=str(n))) for n in range(30)]
    fixed = run_fix(pod({}), *rules)
    assert fixed.operations == []
    assert len(fixed.remaining.failures) == 30


def test_a_rule_that_always_finds_something_new_terminates() -> None:
    def body(pod: Pod, _context: Context) -> Iterator[Finding]:
        count = pod.spec.get("count", 0)
        edits = (put((*pod.path, "count"), count + 1),)
        yield Finding(
            path=pod.path,
            key=f"count.{count}",
            message="counts",
            fix=Fix("count", edits, safe=True),
        )

    rules = [active("endless", body), active("good", find_field("a", fixable=True))]
    fixed = run_fix(pod({"a": 1}), *rules)
    assert fixed.manifest == pod({})
    assert [failure.rule for failure in fixed.remaining.failures] == ["endless"]


def test_a_fix_may_enable_the_fix_of_an_earlier_rule() -> None:
    def needs(pod: Pod, _context: Context) -> Iterator[Finding]:
        if "a" not in pod.containers[0].raw and "x" not in pod.spec:
            edits = (put((*pod.path, "x"), 1),)
            yield Finding(
                path=pod.path, key="x", message="has no x", fix=Fix("add x", edits, safe=True)
            )

    fixed = run_fix(
        pod({"a": 1}), active("early", needs), active("late", find_field("a", fixable=True))
    )
    assert [finding.rule for finding in fixed.fixed] == ["late", "early"]
    assert fixed.remaining.findings == []


def test_an_unfixable_finding_is_no_failure_of_the_fix() -> None:
    """Two siblings without names share an identity; only one of their findings can be fixed."""

    def body(pod: Pod, _context: Context) -> Iterator[Finding]:
        for container in pod.containers:
            if "a" in container.raw:
                path = (*container.path, "a")
                removal = Fix("remove", (remove(path),), safe=container.raw["a"] == 1)
                yield Finding(path=path, key="a", message="has a", container=container, fix=removal)

    spec = [{"template": {"containers": [{"name": "c", "image": "i", "a": n}]}} for n in (1, 2)]
    manifest = {"apiVersion": "example.com/v1", "kind": "Twins", "spec": spec}
    fixed = run_fix(manifest, active("r", body, scope=FixScope.SAFE))
    assert [operation["path"] for operation in fixed.operations] == [
        "/spec/0/template/containers/0/a"
    ]
    assert fixed.remaining.failures == []
    assert len(fixed.remaining.findings) == 1


@pytest.mark.parametrize(
    ("scope", "safe", "made"),
    [
        (FixScope.ALL, False, True),
        (FixScope.ALL, True, True),
        (FixScope.SAFE, False, False),
        (FixScope.SAFE, True, True),
        (FixScope.NONE, True, False),
    ],
)
def test_only_fixes_in_scope_are_made(scope: FixScope, *, safe: bool, made: bool) -> None:
    rule = active("r", find_field("a", fixable=True, safe=safe), scope=scope)
    (finding,) = run_check(pod({"a": 1}), rule).findings
    assert finding.fixable is made
    assert bool(run_fix(pod({"a": 1}), rule).operations) is made


def test_no_rule_sees_the_edits_of_a_later_one() -> None:
    recorded: dict[str, list[list[str]]] = {"first": [], "last": []}

    def recording(name: str, body: Check) -> Check:
        def record(pod: Pod, context: Context) -> Iterator[Finding]:
            recorded[name].append(
                sorted(key for c in pod.containers for key in c.raw if key != "name")
            )
            yield from body(pod, context)

        return record

    run_fix(
        pod({"a": 1, "b": 1}),
        active("first", recording("first", find_field("a", fixable=True))),
        active("last", recording("last", find_field("b", fixable=True))),
    )
    # Each rule runs before its fix, and once more at the end.
    assert recorded["first"][:2] == [["a", "b"], []]
    assert recorded["last"][:2] == [["b"], []]


def test_operations_are_in_the_order_of_the_rules() -> None:
    rules = [active(f"r{n}", find_field(field, fixable=True)) for n, field in enumerate("cab")]
    fixed = run_fix(pod({"a": 1, "b": 1, "c": 1}), *rules)
    assert [operation["path"][-1] for operation in fixed.operations] == ["c", "a", "b"]
    assert [finding.rule for finding in fixed.fixed] == ["r0", "r1", "r2"]


def test_untouched_parts_stay_the_same_objects() -> None:
    manifest = pod({"a": 1}, {"b": {}})
    fixed: Any = run_fix(manifest, active("r", find_field("a", fixable=True))).manifest
    assert fixed["metadata"] is manifest["metadata"]
    assert fixed["spec"]["containers"][1] is manifest["spec"]["containers"][1]


def test_only_the_named_containers_are_fixed() -> None:
    fixed = run_fix(
        pod({"a": 1}, {"a": 1}), active("r", find_field("a", fixable=True)), only=["c1"]
    )
    assert [operation["path"] for operation in fixed.operations] == ["/spec/containers/1/a"]
    assert summaries(fixed.remaining.findings) == [("r", "c0", "a")]
    # A finding about the pod itself belongs to no container.
    assert run_fix(pod({}), active("w", edit_pod(put(("fixed",), 1))), only=["c0"]).operations == []
    assert (
        run_fix(pod({"a": 1}), active("r", find_field("a", fixable=True)), only=[]).operations == []
    )


def test_a_rule_silences_the_rules_that_it_supersedes() -> None:
    first = active("first", find_field("a"), supersedes=("second",))
    second = active("second", find_field("a"))
    both = pod({"a": 1})
    assert summaries(run_check(both, first, second).findings) == [("first", "c0", "a")]
    # If the first rule is off, the second one reports.
    assert summaries(run_check(both, second).findings) == [("second", "c0", "a")]
    # It supersedes only where it has a finding itself: the same container and key.
    picky = active("first", find_field("b"), supersedes=("second",))
    assert summaries(run_check(pod({"a": 1, "b": 1}), picky, second).findings) == [
        ("first", "c0", "b"),
        ("second", "c0", "a"),
    ]
    twins = {"kind": "List", "items": [pod({"a": 1}), pod({"a": 1})]}
    assert len(run_check(twins, first, second).findings) == 2


def test_a_rule_stays_superseded_after_a_fix_of_another_rule() -> None:
    rules = [
        active("first", find_field("a"), supersedes=("second",)),
        active("other", find_field("b", fixable=True)),
        active("second", find_field("a", fixable=True)),
    ]
    fixed = run_fix(pod({"a": 1, "b": 1}), *rules)
    assert [finding.rule for finding in fixed.fixed] == ["other"]
    assert summaries(fixed.remaining.findings) == [("first", "c0", "a")]


def test_an_exception_also_covers_the_superseded_rules() -> None:
    accepted = PolicyException(rules=("first",), reason="why", namespaces=("n",))
    rules = rule_set(
        active("first", find_field("a"), supersedes=("second",)),
        active("second", find_field("a")),
        exceptions=(accepted,),
    )
    result = check(pod({"a": 1}), rules, CONTEXT)
    assert (result.findings, result.excepted) == ([], ["first"])
    assert result.used_exceptions == {accepted}


def test_a_finding_says_when_an_exception_for_it_ended() -> None:
    def exception(day: int, **patterns: Any) -> PolicyException:
        last_day = CONTEXT.today.replace(year=CONTEXT.today.year - 1, day=day)
        return PolicyException(rules=("r",), reason="why", expires=last_day, **patterns)

    def helps(*exceptions: PolicyException) -> list[str]:
        rules = rule_set(active("r", find_field("a")), exceptions=exceptions)
        return [f.help for f in check(pod({"a": 1}, {"a": 1}), rules, CONTEXT).findings]

    year = CONTEXT.today.year - 1
    (without,) = {*helps()}
    first, second = helps(exception(1, containers=("c0",)), exception(3, containers=("c0",)))
    assert first.startswith(without)
    assert first.endswith(f"an exception for this ended after {year}-{CONTEXT.today.month:02}-03")
    assert second == without
    assert helps(exception(1, namespaces=("another",))) == [without] * 2
    valid = PolicyException(rules=("r",), reason="why", containers=("c0",))
    assert helps(exception(1, containers=("c1",)), valid) == [
        f"{without}; an exception for this ended after {year}-{CONTEXT.today.month:02}-01".strip(
            "; "
        )
    ]


def test_suppressed_findings_are_counted_and_not_fixed() -> None:
    def suppress(finding: Finding, rule: ActiveRule) -> bool:
        assert finding.rule == rule.rule.name
        return finding.container_name == "c0"

    manifest = pod({"a": 1}, {"a": 1})
    rule = active("r", find_field("a", fixable=True))
    result = run_check(manifest, rule, suppress=suppress)
    assert (summaries(result.findings), result.suppressed) == ([("r", "c1", "a")], 1)
    fixed = run_fix(manifest, rule, suppress=suppress)
    assert [operation["path"] for operation in fixed.operations] == ["/spec/containers/1/a"]
    assert (fixed.remaining.findings, fixed.remaining.suppressed) == ([], 1)


def test_a_suppression_keeps_its_finding_while_indices_shift() -> None:
    """The linter suppresses by path, and it knows only the paths of the original text."""

    def finds_env(pod: Pod, _context: Context) -> Iterator[Finding]:
        for container in pod.containers:
            for name, index in container.env.items():
                path = (*container.path, "env", index)
                removal = Fix("remove", (remove(path),), safe=name != "B")
                yield Finding(
                    path=path, key=name, message=f"sets {name}", container=container, fix=removal
                )

    def suppress(finding: Finding, _rule: ActiveRule) -> bool:
        return pointer(finding.path).endswith("/1")

    env = [{"name": name} for name in "ABC"]
    fixed = run_fix(
        pod({"env": env}), active("r", finds_env, scope=FixScope.SAFE), suppress=suppress
    )
    assert fixed.manifest == pod({"env": [{"name": "B"}]})
    assert fixed.remaining.findings == []
    assert fixed.remaining.suppressed == 1


def test_no_rule_runs_again_to_learn_what_is_suppressed() -> None:
    runs = []

    def counted(pod: Pod, context: Context) -> Iterator[Finding]:
        runs.append(context)
        yield from find_field("a", fixable=True)(pod, context)

    def suppress(finding: Finding, _rule: ActiveRule) -> bool:
        return finding.container_name == "c0"

    manifest, rules = pod({"a": 1}), rule_set(active("r", counted))
    checked = check(manifest, rules, CONTEXT)
    fixed = fix(manifest, rules, CONTEXT, suppress, checked=checked)
    assert (fixed.operations, fixed.remaining.suppressed) == ([], 1)
    assert len(runs) == 1


def test_exceptions_come_before_suppression() -> None:
    accepted = PolicyException(rules=("r",), reason="why", containers=("c0",))
    asked_about = []

    def suppress(finding: Finding, _rule: ActiveRule) -> bool:
        asked_about.append(finding.container_name)
        return True

    rules = rule_set(active("r", find_field("a")), exceptions=(accepted,))
    result = check(pod({"a": 1}, {"a": 1}), rules, CONTEXT, suppress)
    assert (result.findings, result.excepted, result.suppressed) == ([], ["r"], 1)
    assert asked_about == ["c1"]


def test_each_pod_of_a_list_is_evaluated_on_its_own() -> None:
    manifest = {"kind": "List", "items": [pod({"a": 1}), quota(), pod({}, name="q"), pod({"a": 1})]}
    rule = active("r", find_field("a", fixable=True))
    result = run_check(manifest, rule)
    assert [finding.path[:2] for finding in result.findings] == [("items", 0), ("items", 3)]
    assert len(result.pod_paths) == 3
    fixed: Any = run_fix(manifest, rule).manifest
    assert fixed["items"] == [pod({}), quota(), pod({}, name="q"), pod({})]
    assert fixed["items"][1] is manifest["items"][1]


def test_malformed_fields_are_reported_beside_findings() -> None:
    manifest = pod({"a": 1, "env": "text"})
    result = run_check(manifest, active("r", find_field("a")))
    assert [pointer(unreadable.path) for unreadable in result.malformed_fields] == [
        "/spec/containers/0/env"
    ]
    assert len(result.findings) == 1


@pytest.mark.parametrize("manifest", [None, [], "text", 1, {}, {"kind": "Pod"}, {"kind": 1}])
def test_a_manifest_without_a_pod_has_no_findings(manifest: Any) -> None:
    result = run_check(manifest, active("r", find_field("a")))
    assert (result.findings, len(result.pod_paths)) == ([], 0)
    assert run_fix(manifest, active("r", find_field("a", fixable=True))).manifest is manifest


def component(account: str = "agent", namespace: str = "system") -> dict[str, Any]:
    manifest = pod({"a": 1}, namespace=namespace)
    manifest["spec"]["serviceAccountName"] = account
    return manifest


@pytest.mark.parametrize(
    ("manifest", "user", "is_skipped"),
    [
        (pod({"a": 1}, annotations={MIRROR_ANNOTATION: "hash"}), "system:node:one", True),
        # Any user can write the annotation, in a file too.
        (pod({"a": 1}, annotations={MIRROR_ANNOTATION: "hash"}), None, False),
        (pod({"a": 1}, annotations={MIRROR_ANNOTATION: "hash"}), "tenant", False),
        (pod({"a": 1}, annotations={MIRROR_ANNOTATION: "hash"}), CONTROLLER, False),
        (component(), None, True),
        (component(), CONTROLLER, True),
        (component(), "operator", True),
        # A tenant who writes the names of a component is still a tenant.
        (component(), "tenant", False),
        (component(account="default"), CONTROLLER, False),
        (component(namespace="n"), CONTROLLER, False),
        (component(namespace="n"), None, False),
    ],
)
def test_mirror_pods_and_components_are_not_evaluated(
    manifest: dict[str, Any], user: str | None, *, is_skipped: bool
) -> None:
    rules = rule_set(active("r", find_field("a", fixable=True)))
    context = CONTEXT._replace(user=user, operation="CREATE" if user else None)
    result = check(manifest, rules, context)
    assert (len(result.pod_paths), result.findings == []) == (1, is_skipped)
    fixed = fix(manifest, rules, context)
    assert (fixed.manifest is manifest) is is_skipped


@pytest.mark.parametrize(
    ("one", "user", "expected"),
    [
        (Component(("system",), ("agent",)), CONTROLLER, []),
        (Component(("system",), ("agent",)), "operator", ["r", "s"]),
        # Creators take the place of the DaemonSet controller.
        (Component(("system",), ("agent",), ("operator",)), "operator", []),
        (Component(("system",), ("agent",), ("operator",)), CONTROLLER, ["r", "s"]),
        (Component(("system",), ("agent",), images=("example.com/agent:*",)), CONTROLLER, []),
        (Component(("system",), ("agent",), images=("example.com/x:*",)), CONTROLLER, ["r", "s"]),
        (Component(("system",), ("agent",), rules=("r",)), CONTROLLER, ["s"]),
        (Component(("system",), ("agent",), rules=("r",)), "operator", ["r", "s"]),
    ],
)
def test_a_component_may_be_narrowed_to_creators_images_and_rules(
    one: Component, user: str, expected: list[str]
) -> None:
    manifest = component()
    manifest["spec"]["containers"][0]["image"] = "example.com/agent:1"
    rules = (active("r", find_field("a")), active("s", find_field("a")))
    rule_set = RuleSet(rules, Profile("p", components=(one,)))
    result = check(manifest, rule_set, CONTEXT._replace(user=user))
    assert [finding.rule for finding in result.findings] == expected
    assert result.components == (not expected)
    assert result.excused == ([(("spec",), one.rules)] if len(expected) < len(rules) else [])


def test_every_container_of_a_component_needs_one_of_its_images() -> None:
    manifest = component()
    manifest["spec"]["containers"] = [
        {"name": "agent", "image": "example.com/agent:1", "a": 1},
        {"name": "other", "image": "example.com/other:1", "a": 1},
    ]
    one = Component(("system",), ("agent",), images=("example.com/agent:*",))
    rule_set = RuleSet((active("r", find_field("a")),), Profile("p", components=(one,)))
    result = check(manifest, rule_set, CONTEXT._replace(user=CONTROLLER))
    assert [finding.container_name for finding in result.findings] == ["agent", "other"]


def test_a_rule_that_nobody_may_suppress_is_run_for_a_component_with_rules() -> None:
    one = Component(("system",), ("agent",), rules=("r",))
    strict = active("r", find_field("a"))._replace(suppressible=False)
    rule_set = RuleSet((strict,), Profile("p", components=(one,)))
    assert check(component(), rule_set, CONTEXT._replace(user=CONTROLLER)).findings


def test_the_namespace_of_the_request_counts_where_the_object_names_none() -> None:
    manifest = component()
    del manifest["metadata"]["namespace"]
    rules = rule_set(active("r", find_field("a")))
    assert not check(manifest, rules, CONTEXT._replace(namespace="system")).findings
    (finding,) = check(manifest, rules, CONTEXT._replace(namespace="n")).findings
    assert str(finding.object) == "Pod n/p"


def test_only_new_findings_are_introduced() -> None:
    rule = active("r", find_field("a"))
    old = run_check(pod({"a": 1}, {}), rule).findings
    new = run_check(pod({"a": 1}, {"a": 1}), rule).findings
    assert summaries(introduced_findings(new, old)) == [("r", "c1", "a")]
    assert introduced_findings(old, new) == []
    assert introduced_findings(new, []) == new
    # The message has the value, so a finding that got worse is new.
    worse = run_check(
        pod({"a": 1}, {}), active("r", find_field("a", message="has more of a"))
    ).findings
    assert introduced_findings(worse, old) == worse


findings = st.sampled_from(
    [
        Finding(path=(), key=key, message=message, rule=rule)
        for key in ("a", "b")
        for message in ("m", "n")
        for rule in ("r", "s")
    ]
)


@settings(deadline=None)
@given(st.lists(findings), st.lists(findings))
def test_introduced_is_the_difference_of_multisets(new: list[Finding], old: list[Finding]) -> None:
    fresh = introduced_findings(new, old)
    for finding in set(new):
        assert fresh.count(finding) == max(0, new.count(finding) - old.count(finding))
    left = iter(new)
    assert all(finding in left for finding in fresh)


def test_indices_do_not_matter_for_what_is_introduced() -> None:
    rule = active("r", find_field("a"))
    old = pod({"name": "x", "a": 1}, {"name": "y", "a": 1})
    new = pod({"name": "z"}, {"name": "y", "a": 1}, {"name": "x", "a": 1})
    assert introduced_findings(run_check(new, rule).findings, run_check(old, rule).findings) == []


def test_rules_that_find_nothing_take_steps() -> None:
    rules = rule_set(*(active(f"r{number}", find_field("b")) for number in range(3)))
    (subject,) = find_subjects(pod({"a": 1}), PROFILE, "home")
    assert isinstance(subject, Pod)
    steps = steps_of(subject)
    assert not check(pod({"a": 1}), rules, CONTEXT, steps=StepLimit(3 * steps)).findings
    with pytest.raises(TooManyStepsError):
        check(pod({"a": 1}), rules, CONTEXT, steps=StepLimit(3 * steps - 1))


def test_an_ordinary_profile_gives_no_subject_a_trait() -> None:
    assert profile_traits(PROFILE) == 0
