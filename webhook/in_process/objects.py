"""The ValidatingAdmissionPolicies of a policy, and their bindings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from policies.policy import Policy
from policies.profiles import merged_built_in_profiles
from rules.base.json_values import as_object
from rules.finding import Action, sha256_hex
from rules.in_process.bounds import MAX_CHARACTERS, MAX_COUNTS
from rules.in_process.components import IS_POD, components, is_made_by_controller, is_mirror
from rules.in_process.evidence import evidence
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    REQUEST,
    Expression,
    Value,
    all_of,
    any_of,
    choose,
    concat,
    get,
    is_in,
    let,
    not_,
    string,
    text,
)
from rules.in_process.vocabulary import Variable, facts, resolve, variable_name, vocabulary
from rules.rule import Rule
from webhook.in_process.statements import (
    ExceptionVariables,
    ExportedRule,
    FixingRule,
    exported_rules,
    findings_at,
    left_out,
    reason_against,
)
from webhook.match_conditions import (
    MOST_OWN_NAMES,
    condition,
    count_own_names,
    is_about_every_pod,
)
from webhook.registration import BUILT_IN_WORKLOADS, RegistrationOptions, mode_selectors

LEVELS = (Action.DENY, Action.WARN, Action.AUDIT)
# The API server falls back to a fixed text if a message has more than 5,120 bytes, and cuts
# warnings if those of one answer have more than 4,096.
MAX_MESSAGE_CHARACTERS = {Action.DENY: 4_500, Action.WARN: 2_500, Action.AUDIT: 2_500}
_POD_TOO_LARGE = (
    "[too-large] the API server does not evaluate this pod, because it has more than "
    + ", ".join(f"{number:,} {what}" for what, number in MAX_COUNTS.items())
    + f", or a variable with a name or a prefix of more than {MAX_CHARACTERS['prefix']} characters"
)


class ExportOptions(NamedTuple):
    """The options of an export.

    - `registration`: the modes of namespaces and their labels, as for the webhook.
    - `failure_policy`: what happens to a pod that cannot be evaluated or fixed, in namespaces in
      mode deny.
    """

    registration: RegistrationOptions = RegistrationOptions()
    failure_policy: Literal["Ignore", "Fail"] = "Fail"


DIGEST_ANNOTATION = "gpuward.io/digest"
"""Has the `digest_of` an object as it was written."""


def policy_objects(
    policy: Policy, options: ExportOptions, levels: Sequence[Action] = LEVELS
) -> Iterator[dict[str, Any]]:
    """Every object of the export about pods and workloads, a policy before its bindings.

    `levels` are the actions of the findings that it is about, the strictest first.
    """
    return with_digests(_objects(policy, options, levels))


SPEC_DIGEST_ANNOTATION = "gpuward.io/spec-digest"
"""Has the `spec_digest_of` an object as it was written."""
BINDINGS_ANNOTATION = "gpuward.io/bindings"
"""Has the names of the bindings that were written with a policy, with commas between them."""


def with_digests(objects: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield objects with annotations by which changes are seen: digests, and bindings."""
    every = list(objects)
    bindings: dict[str, list[str]] = {}
    for made in every:
        bindings.setdefault(made["spec"].get("policyName", ""), []).append(made["metadata"]["name"])
    for made in every:
        annotations = made["metadata"].setdefault("annotations", {})
        annotations[DIGEST_ANNOTATION] = digest_of(made)
        annotations[SPEC_DIGEST_ANNOTATION] = spec_digest_of(made)
        if own := bindings.get(made["metadata"]["name"]):
            annotations[BINDINGS_ANNOTATION] = ",".join(own)
        yield made


_FIELDS_OF_ACTION = (
    *("policyName", "validationActions", "matchConditions", "variables"),
    *("validations", "mutations"),
)
# Others that a newer API server may add, with a value of its own, are no change.
_FIELDS_OF_SPEC = (
    *_FIELDS_OF_ACTION,
    *("failurePolicy", "matchConstraints", "matchResources"),
    *("paramKind", "paramRef", "reinvocationPolicy"),
)


def digest_of(raw: Mapping[str, Any]) -> str:
    """A hash of what an object does: its expressions, or the actions of a binding.

    Where it acts, and what it does if an expression fails, is a matter of options, and left out.
    """
    return _digest(raw, _FIELDS_OF_ACTION)


def spec_digest_of(raw: Mapping[str, Any]) -> str:
    """A hash of what an object does and of where it acts, with what options choose."""
    return _digest(raw, _FIELDS_OF_SPEC)


def _digest(raw: Mapping[str, Any], fields: Iterable[str]) -> str:
    spec = as_object(raw.get("spec"))
    content = [(name, spec[name]) for name in fields if name in spec]
    return sha256_hex(json.dumps(content, sort_keys=True))[:32]


def _objects(
    policy: Policy, options: ExportOptions, levels: Sequence[Action]
) -> Iterator[dict[str, Any]]:
    rules, exceptions = exported_rules(policy.rule_set()), ExceptionVariables(policy.exceptions)
    groups: dict[str, list[ExportedRule]] = {}
    for rule in rules:
        groups.setdefault(group_of_rule(rule.active.rule), []).append(rule)
    first = True
    for group, members in sorted(groups.items()):
        for level in levels:
            texts = ((rule, findings_at(rule, level, exceptions, rules)) for rule in members)
            found = [(rule, lists) for rule, lists in texts if lists]
            if found:
                refuses_large = first and level is Action.DENY
                first = first and not refuses_large
                target = _Target(f"gpuward-{group}-{level.word}", level, refuses_large)
                yield _policy(target, policy, found, options)
                yield from _bindings(target, options)


def group_of_rule(rule: Rule[Any]) -> str:
    """Return the word in the names of the policies that have `rule`: most often its family.

    A rule about every pod is apart, so that API servers pass over pods that concern no other.
    """
    return "every-pod" if is_about_every_pod(rule) else rule.family


VALIDATION = str(POLICY.number == 0)
"""Whether nothing is found."""


def validation(text_of_message: str) -> dict[str, Any]:
    """Return the validation of a policy, whose variable `number` counts the faults."""
    return {
        "expression": VALIDATION,
        "message": "gpuward has found faults in this object",
        "messageExpression": text_of_message,
        "reason": "Forbidden",
    }


class _Target(NamedTuple):
    """The name of a policy, and the action of its findings.

    The one that `refuses_large` pods is evaluated for every pod that is too large, whatever it is.
    """

    name: str
    level: Action
    refuses_large: bool


def _policy(
    target: _Target,
    policy: Policy,
    found: Sequence[tuple[ExportedRule, Sequence[Expression]]],
    options: ExportOptions,
) -> dict[str, Any]:
    text_of_message = message(target.level, _POD_TOO_LARGE)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {
            "name": target.name,
            "labels": labels(),
            "annotations": {"kubernetes.io/description": _description(policy, found, target)},
        },
        "spec": {
            "failurePolicy": options.failure_policy,
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [*_POD_RULES, *_WORKLOAD_RULES],
            },
            **_match_conditions(target, policy, found),
            "variables": [
                v._asdict()
                for v in used(_variables(policy, found, target), VALIDATION, text_of_message)
            ],
            "validations": [validation(text_of_message)],
        },
    }


def _match_conditions(
    target: _Target, policy: Policy, found: Sequence[tuple[ExportedRule, Sequence[Expression]]]
) -> dict[str, Any]:
    # Nothing fixes a pod that is too large, and anything may be hidden in it.
    rules = [rule for rule, _ in found]
    return match_conditions(policy, rules, with_large_pods=target.refuses_large)


def match_conditions(
    policy: Policy, rules: Sequence[ExportedRule | FixingRule], *, with_large_pods: bool = False
) -> dict[str, Any]:
    """By which an API server evaluates no variables for a pod that has nothing to do with GPUs.

    There are none if one of `rules` is about every pod, or if the profile has too many names.
    """
    is_about_all = any(
        rule.active.options.get("every_container") or is_about_every_pod(rule.active.rule)
        for rule in rules
    )
    own = count_own_names(policy.profile, merged_built_in_profiles())
    if is_about_all or own > MOST_OWN_NAMES:
        return {}
    tests = condition(
        [rule.active.rule for rule in rules], [policy.profile], with_large_pods=with_large_pods
    ).rstrip()
    # It reads fields of pods.
    may_concern = f'request.kind.kind != "Pod" || (\n{tests}\n)'
    return {"matchConditions": [{"name": "may-concern-a-rule", "expression": may_concern}]}


def used(variables: Iterable[Variable], *expressions: str) -> list[Variable]:
    """Those that `expressions` use, and those that they use, each after what it uses."""
    kept: list[Variable] = []
    named = {name for text in expressions for name in _USE.findall(text)}
    for variable in reversed([*variables]):
        if variable.name in named:
            kept.append(variable)
            named.update(_USE.findall(variable.expression))
    return kept[::-1]


_USE = re.compile(r"\bvariables\.(\w+)")


def _variables(
    policy: Policy, found: Sequence[tuple[ExportedRule, Sequence[Expression]]], target: _Target
) -> Iterator[Variable]:
    yield from facts(policy.profile)
    constants = (rule.constants for rule, _ in found)
    for name, text_of_value in {n: v for own in constants for n, v in own.items()}.items():
        yield Variable(name, text_of_value)
    yield Variable("isUpdate", str(REQUEST.operation == "UPDATE"))
    read = {name: True for rule, _ in found for s in rule.statements for name in s.variables}
    for old in (True, False):
        yield from vocabulary(policy.profile, old=old, variables=[*read])
        yield from evidence(policy.profile, old=old)
        for name, value in _about_object(policy, found, old=old):
            yield Variable(variable_name(name, old=old), resolve(value, old=old))
    is_large_only_now = all_of(
        IS_POD,
        not_(POLICY.isSkipped),
        POLICY.tooLarge,
        not_(all_of(POLICY.isUpdate, POLICY.oldTooLarge)),
    )
    yield Variable("isTooLarge", str(is_large_only_now if target.level is Action.DENY else "false"))
    # An update is about what it adds.
    introduced = POLICY.found.map(lambda texts: texts.filter(_is_introduced))
    yield Variable("introduced", str(choose((POLICY.isUpdate, introduced), otherwise=POLICY.found)))
    number = POLICY.introduced.map(lambda texts: texts.size()).sum()
    yield Variable("number", str(choose((POLICY.isTooLarge, 1), otherwise=number)))


def _is_introduced(text: Expression) -> Expression:
    """Return whether nothing said `text` about the object before the update."""
    return not_(POLICY.oldFound.exists(lambda old: old.exists(lambda other: other == text)))


def _about_object(
    policy: Policy, found: Sequence[tuple[ExportedRule, Sequence[Expression]]], *, old: bool
) -> Iterator[tuple[str, Value]]:
    """Yield the variables about the object that come after those of `vocabulary`."""
    yield "changedAnnotations", _changed("annotations", old=old)
    yield "changedLabels", _changed("labels", old=old)
    yield "excused", excused(policy)
    yield "isSkipped", skipped(policy)
    words = (rule.words for rule, _ in found)
    yield from {n: v for own in words for n, v in own.items()}.items()
    yield from ExceptionVariables(policy.exceptions).of_rules(r for r, _ in found)
    findings = {n: texts for rule, lists in found for n, texts in _findings(rule, lists)}
    yield from findings.items()
    every = concat([getattr(OBJECT, word) for word in findings])
    is_passed = any_of(OBJECT.isSkipped, OBJECT.tooLarge)
    yield "found", choose((is_passed, []), otherwise=every)


def _findings(rule: ExportedRule, lists: Sequence[Expression]) -> Iterator[tuple[str, Expression]]:
    """Yield a variable for what each statement of a rule finds, as `lists` has it.

    An API server takes longer for one long expression than for many short ones: to compile it takes
    a time that grows with the square of its calls.
    """
    for number, texts in enumerate(lists, 1):
        yield rule.variable + (str(number) if len(lists) > 1 else ""), texts


def _changed(word: str, *, old: bool) -> Value:
    """Return the keys in the field `word` of the metadata that an update adds, changes or removes.

    Of the object as it was, nothing is changed.
    """
    if old:
        return []
    new, before = get(POLICY.metadata, word, {}), get(POLICY.oldMetadata, word, {})
    added = new.filter(lambda a: any_of(not_(is_in(a, before)), before[a] != new[a]))
    removed = before.filter(lambda a: not_(is_in(a, new)))
    return choose((not_(POLICY.isUpdate), []), otherwise=added + removed)


def excused(policy: Policy) -> Expression:
    """Return the rules that are not run for the pod of a component."""
    found = [(test, rules) for rules, test in components(policy.profile) if rules]
    return choose(*found, otherwise=[])


def skipped(policy: Policy) -> Expression:
    """Return whether no rule is run for the pod."""
    tests = [test for rules, test in components(policy.profile) if not rules]
    is_judged_elsewhere = choose((IS_POD, is_mirror()), otherwise=is_made_by_controller())
    return any_of(is_judged_elsewhere, *tests)


def message(level: Action, too_large: str) -> str:
    """Return the message in CEL: what is `introduced`, or `too_large` if the object `isTooLarge`.

    Both are variables of the policy, and `introduced` has a list of texts for each rule.
    """
    longest = MAX_MESSAGE_CHARACTERS[level]
    texts = (
        POLICY.introduced.filter(lambda of_rule: of_rule.size() > 0)
        .map(lambda of_rule: of_rule.join(" | "))
        .join(" | ")
    )
    number = string(POLICY.number)
    found = let(
        texts,
        lambda t: choose((t.size() > longest, t.substring(0, longest) + "…"), otherwise=t),
        lambda t: choose(
            (POLICY.number == 1, text(f"gpuward {t}")),
            otherwise=text(f"gpuward found {number} faults: {t}"),
        ),
    )
    return str(choose((POLICY.isTooLarge, f"gpuward {too_large}"), otherwise=found))


def _description(
    policy: Policy, found: Sequence[tuple[ExportedRule, Sequence[Expression]]], target: _Target
) -> str:
    """Return a description of the policy, and of what it leaves out."""
    families = {rule.active.rule.family: True for rule, _ in found}
    names = ", ".join(rule.name for rule, _ in found)
    missing = [
        f"{active.rule.name}: {reason}"
        for active in policy.rule_set().rules
        if active.rule.family in families and (reason := reason_against(active.rule))
    ]
    partly = [
        f"{rule.name}: {'; '.join(texts)}"
        for rule, _ in found
        if (texts := left_out(rule.active, policy.profile))
    ]
    sentences = [
        f"Rules of gpuward for the action {target.level.word} about pods and workloads:",
        f"{names}.",
        "Written by `gpuward export`; a change of the policy needs a new export.",
        "It fixes nothing, and knows no GpuExceptions.",
        *([f"Partly said: {'. '.join(partly)}."] if partly else []),
        *([f"Left out: {'. '.join(missing)}."] if missing else []),
    ]
    if any(exception.expires for exception in policy.exceptions):
        sentences.append("An exception ends for pods that are created after its last day.")
    return " ".join(sentences)


def _bindings(target: _Target, options: ExportOptions) -> Iterator[dict[str, Any]]:
    for mode, selector in mode_selectors(options.registration):
        action, name = min(target.level, mode), f"{target.name}-in-mode-{mode.word}"
        if action is Action.DENY:
            yield binding(name, target.name, action, selector, _POD_RULES)
            # A workload is never refused: its pods are.
            of_workloads = f"{name}-workloads"
            yield binding(of_workloads, target.name, Action.WARN, selector, _WORKLOAD_RULES)
        else:
            yield binding(name, target.name, action, selector)


def binding(
    name: str,
    policy: str,
    action: Action,
    selector: dict[str, Any],
    rules: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the binding `name` of the `policy` with that name.

    In the namespaces of the `selector` it does what the `action` says; with `rules`, about these
    resources alone.
    """
    actions = {Action.DENY: "Deny", Action.WARN: "Warn", Action.AUDIT: "Audit"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": labels()},
        "spec": {
            "policyName": policy,
            "validationActions": [actions[action]],
            "matchResources": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": selector,
                "objectSelector": {},
                **({"resourceRules": list(rules)} if rules else {}),
            },
        },
    }


def labels() -> dict[str, str]:
    """The labels of an object of the export."""
    return {
        "app.kubernetes.io/name": "gpuward",
        "app.kubernetes.io/component": "in-process",
        "app.kubernetes.io/managed-by": "gpuward-export",
    }


def resource_rule(
    group: str, resources: Iterable[str], operations: Iterable[str]
) -> dict[str, Any]:
    """Return the resources and operations that a policy is about."""
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": list(resources),
        "scope": "Namespaced",
    }


_POD_RULES = (
    resource_rule("", ["pods"], ["CREATE", "UPDATE"]),
    resource_rule("", ["pods/ephemeralcontainers"], ["UPDATE"]),
)
_WORKLOAD_RULES = tuple(
    resource_rule(group, resources, ["CREATE", "UPDATE"])
    for group, resources in BUILT_IN_WORKLOADS.items()
)
