"""The ValidatingAdmissionPolicies about keys of ConfigMaps and Secrets, and their bindings.

API servers decide about these by the keys alone: no content leaves them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from policies.policy import Policy
from rules.engine.rule_set import ActiveRule
from rules.finding import Action
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    REQUEST,
    Expression,
    Value,
    all_of,
    any_of,
    bound,
    choose,
    concat,
    dyn,
    expression,
    get,
    is_in,
    name,
    not_,
    text,
)
from rules.in_process.patterns import matches_any
from rules.in_process.statement import KEY, KeyStatement
from rules.in_process.vocabulary import Variable, resolve, variable_name
from webhook.in_process.objects import (
    LEVELS,
    VALIDATION,
    ExportOptions,
    binding,
    labels,
    message,
    resource_rule,
    used,
    validation,
    with_digests,
)
from webhook.in_process.statements import accepts_keys, exported_key_rules
from webhook.registration import mode_selectors

MAX_KEYS, MAX_FOUND = 10_000, 100
"""Of an object, and of what is found in it: an API server stops an expression that costs more."""
_TOO_LARGE = (
    "[too-large] the API server does not evaluate this object, because it has more than "
    f"{MAX_KEYS:,} keys, or more than {MAX_FOUND} that are names of variables about GPUs"
)
# An API server merges `stringData` into `data` before it asks policies.
_FIELDS = ("data", "binaryData")


def key_objects(
    policy: Policy, options: ExportOptions, levels: Sequence[Action] = LEVELS
) -> Iterator[dict[str, Any]]:
    """Every object of the export about keys, a policy before its bindings.

    Those whose action is one of `levels`.
    """
    return with_digests(_objects(policy, options, levels))


def _objects(
    policy: Policy, options: ExportOptions, levels: Sequence[Action]
) -> Iterator[dict[str, Any]]:
    for active, statement in exported_key_rules(policy.rule_set()):
        if active.action not in levels:
            continue
        made = _policy(policy, active, statement, options)
        yield made
        policy_name = made["metadata"]["name"]
        for mode, selector in mode_selectors(options.registration):
            action = min(active.action, mode)
            name_of_binding = f"{policy_name}-in-mode-{mode.word}"
            yield binding(name_of_binding, policy_name, action, selector)


def _policy(
    policy: Policy, active: ActiveRule, statement: KeyStatement, options: ExportOptions
) -> dict[str, Any]:
    text_of_message = message(active.action, _TOO_LARGE)
    variables = used(_variables(policy, active, statement), VALIDATION, text_of_message)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {
            "name": f"gpuward-keys-{active.action.word}",
            "labels": labels(),
            "annotations": {"kubernetes.io/description": _description(active)},
        },
        "spec": {
            "failurePolicy": options.failure_policy,
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [
                    resource_rule("", ["configmaps", "secrets"], ["CREATE", "UPDATE"])
                ],
            },
            "variables": [variable._asdict() for variable in variables],
            "validations": [validation(text_of_message)],
        },
    }


def _description(active: ActiveRule) -> str:
    return (
        f"The rule {active.rule.name} of gpuward about keys of ConfigMaps and Secrets. It reads no "
        "values. Written by `gpuward export`; a change of the policy needs a new export."
    )


def _variables(policy: Policy, active: ActiveRule, statement: KeyStatement) -> Iterator[Variable]:
    yield Variable("isUpdate", str(REQUEST.operation == "UPDATE"))
    names = [pattern for pattern in statement.patterns if "*" not in pattern]
    yield Variable("names", str(expression(names)))
    yield Variable("objectMetadata", str(dyn(name("object").metadata)))
    for old in (True, False):
        for word, value in _about_object(statement, old=old).items():
            yield Variable(variable_name(word, old=old), resolve(value, old=old))
    yield Variable("isExcused", resolve(_is_excused(policy, active, statement), old=False))
    # An update is about what it adds.
    added = POLICY.keys.filter(lambda k: not_(POLICY.oldFields.exists(lambda f: is_in(k, f))))
    found = choose((POLICY.isExcused, []), (POLICY.isUpdate, added), otherwise=POLICY.keys)
    yield Variable("found", str(found))
    had_many = all_of(POLICY.isUpdate, POLICY.oldHasManyKeys)
    has_many_only_now = all_of(not_(POLICY.isExcused), POLICY.hasManyKeys, not_(had_many))
    is_too_large = any_of(has_many_only_now, POLICY.found.size() > MAX_FOUND)
    yield Variable(
        "isTooLarge", str(is_too_large if active.action is Action.DENY else expression(False))
    )
    words = f"[{active.rule.name}] {expression(statement.message)}; {expression(statement.help)}"
    texts = POLICY.found.map(bound(KEY, text(words)))
    yield Variable("introduced", str(expression([texts])))
    yield Variable("number", str(choose((POLICY.isTooLarge, 1), otherwise=POLICY.found.size())))


def _about_object(statement: KeyStatement, *, old: bool) -> dict[str, Value]:
    """Return the variables about the object, or about the object before an update."""
    root = dyn(name("oldObject" if old else "object"))
    patterns = [pattern for pattern in statement.patterns if "*" in pattern]

    def matching(f: Expression) -> Expression:
        return f.filter(lambda k: all_of(matches_any(k, patterns), not_(is_in(k, POLICY.names))))

    # Names are looked up, which costs the same however many keys there are.
    found: list[Value] = [
        POLICY.names.filter(lambda n: OBJECT.fields.exists(lambda f: is_in(n, f)))
    ]
    if patterns:
        by_pattern = OBJECT.fields.map(matching).flatten()
        found.append(choose((OBJECT.hasManyKeys, []), otherwise=by_pattern))
    return {
        "fields": [get(root, field, {}) for field in _FIELDS],
        "hasManyKeys": OBJECT.fields.map(lambda f: f.size()).sum() > MAX_KEYS,
        "keys": concat(found),
    }


def _is_excused(policy: Policy, active: ActiveRule, statement: KeyStatement) -> Expression:
    """Return whether the rule accepts the request, or an exception the object."""
    exceptions = (each for each in policy.exceptions if active.rule.name in each.rules)
    return any_of(statement.is_excused, *map(accepts_keys, exceptions))
