"""The MutatingAdmissionPolicy of a policy, which fixes pods, and its binding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from policies.policy import Policy
from rules.finding import Action
from rules.gpu.visibility import ALTERNATIVE_VARIABLE, NVIDIA_VISIBLE_DEVICES
from rules.in_process.evidence import evidence
from rules.in_process.expression import (
    OBJECT,
    Expression,
    Value,
    all_of,
    any_of,
    bound,
    choose,
    concat,
    construct,
    expression,
    get,
    has,
    is_in,
    not_,
    record,
    string,
)
from rules.in_process.mutation import mutation_words
from rules.in_process.statement import AT, CONTAINER, HIDE, REMOVE, VARIABLE, VariableChange, add
from rules.in_process.vocabulary import Variable, facts, resolve, vocabulary
from rules.profile.profile import Profile
from webhook.in_process.objects import (
    ExportOptions,
    excused,
    labels,
    match_conditions,
    resource_rule,
    skipped,
    used,
    with_digests,
)
from webhook.in_process.statements import (
    ONLY_BY_WEBHOOK,
    ExceptionVariables,
    FixingRule,
    fixing_rules,
    reason_against_fix,
)
from webhook.match_conditions import is_about_every_pod
from webhook.registration import mode_selectors

NAME = "gpuward-fixes"
"""The name of the policy."""
NAME_FOR_EVERY_POD = f"{NAME}-every-pod"
"""The name of that with the rules about every pod, so that the other can pass over most pods."""


def fix_objects(policy: Policy, options: ExportOptions) -> Iterator[dict[str, Any]]:
    """The policies and their bindings, like the webhook for namespaces in mode deny.

    Nothing, if the policy fixes nothing or no namespace can be in this mode.
    """
    return with_digests(_objects(policy, options))


def _objects(policy: Policy, options: ExportOptions) -> Iterator[dict[str, Any]]:
    rules = fixing_rules(policy.rule_set())
    selectors = [s for mode, s in mode_selectors(options.registration) if mode is Action.DENY]
    for name_of_policy, is_about_all in ((NAME, False), (NAME_FOR_EVERY_POD, True)):
        own = [each for each in rules if is_about_every_pod(each.active.rule) is is_about_all]
        if own and selectors:
            yield _policy(name_of_policy, policy, own, options)
            yield from (_binding(name_of_policy, selector) for selector in selectors)


def _policy(
    name_of_policy: str, policy: Policy, rules: Sequence[FixingRule], options: ExportOptions
) -> dict[str, Any]:
    patch = resolve(_patch(rules, ExceptionVariables(policy.exceptions)), old=False)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {
            "name": name_of_policy,
            "labels": labels(),
            "annotations": {"kubernetes.io/description": _description(policy, rules)},
        },
        "spec": {
            # Of some pods only the fix keeps GPUs away: who makes it fail must not get them.
            "failurePolicy": options.failure_policy,
            # What a webhook adds later is fixed too.
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [resource_rule("", ["pods"], ["CREATE"])],
            },
            **match_conditions(policy, rules),
            "variables": [v._asdict() for v in used(_variables(policy, rules), patch)],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        },
    }


def _binding(name_of_policy: str, selector: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": f"{name_of_policy}-in-mode-deny", "labels": labels()},
        "spec": {
            "policyName": name_of_policy,
            "matchResources": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": selector,
                "objectSelector": {},
            },
        },
    }


def _description(policy: Policy, rules: Sequence[FixingRule]) -> str:
    names = ", ".join(rule.name for rule in rules)
    reasons = {
        active.rule.name: reason_against_fix(active.rule) for active in policy.rule_set().rules
    }
    missing = [name for name, reason in reasons.items() if reason == ONLY_BY_WEBHOOK]
    return (
        f"Rules of gpuward that fix new pods: {names}. Written by `gpuward export map`; a change "
        f"of the policy needs a new export. Not fixed: {', '.join(missing)}."
    )


def _variables(policy: Policy, rules: Sequence[FixingRule]) -> Iterator[Variable]:
    exceptions = ExceptionVariables(policy.exceptions)
    yield from facts(policy.profile)
    yield from vocabulary(policy.profile)
    yield from evidence(policy.profile, old=False)
    yield from mutation_words(policy.profile)
    words = {n: t for rule in rules for each in rule.mutations for n, t in each.words.items()}
    values: dict[str, Value] = {
        "excused": excused(policy),
        "isSkipped": skipped(policy),
        **dict(exceptions.of_rules(rules)),
        **words,
        "edits": _edits(rules, exceptions, policy.profile),
    }
    for word, value in values.items():
        yield Variable(word, resolve(value, old=False))


def _edits(
    rules: Sequence[FixingRule], exceptions: ExceptionVariables, profile: Profile
) -> Expression:
    """Return of each container which variables are removed, and which entries are written."""
    removed, written = [], []
    names, entries = string(VARIABLE.name), VARIABLE.facts.hidden
    for rule in rules:
        for mutation in rule.mutations:
            test = rule.test(mutation, exceptions)
            found = CONTAINER.variables.filter(bound(VARIABLE, test))
            if mutation.each == "variable" and mutation.change is REMOVE:
                removed.append(found.map(bound(VARIABLE, names)))
            elif mutation.each == "variable" and mutation.change is HIDE:
                without = found.filter(bound(VARIABLE, entries.size() == 0))
                removed.append(without.map(bound(VARIABLE, names)))
                entry = {"name": names, "value": string(entries[0])}
                hiding = found.filter(bound(VARIABLE, entries.size() > 0))
                written.append(hiding.map(bound(VARIABLE, entry)))
            elif mutation.change is HIDE:
                written.append(choose((test, _hidden(profile)), otherwise=[]))

    def edit(p: Expression) -> Expression:
        c = CONTAINER
        made = record(
            at=p.at,
            raw=c.raw,
            names=get(c.raw, "env", []).map(lambda x: string(x.name)),
            removed=concat(removed),
            written=concat(written),
        )
        return expression([p.c]).map(bound(CONTAINER, made))[0]

    return OBJECT.places.map(edit).filter(lambda e: e.removed.size() + e.written.size() > 0)


def _hidden(profile: Profile) -> Value:
    """Return the entry that hides all GPUs of a container that sets nothing; none if none does."""
    known = profile.visible_variable(NVIDIA_VISIBLE_DEVICES) or ALTERNATIVE_VARIABLE
    value = known.hiding_value
    return [] if value is None else [{"name": NVIDIA_VISIBLE_DEVICES, "value": value}]


def _patch(rules: Sequence[FixingRule], exceptions: ExceptionVariables) -> Expression:
    """Return the operations. Nothing is fixed of a pod that is too large, or that is skipped."""
    parts = [OBJECT.edits.map(_operations).flatten()]
    for rule in rules:
        for mutation in rule.mutations:
            if isinstance(mutation.change, VariableChange):
                continue
            change = choose((rule.test(mutation, exceptions), mutation.change), otherwise=[])
            if mutation.each == "pod":
                parts.append(change)
            else:
                parts.append(OBJECT.places.map(_in_place(change)).flatten())
    return choose((any_of(OBJECT.isSkipped, OBJECT.tooLarge), []), otherwise=concat(parts))


def _in_place(change: Expression) -> Callable[[Expression], Expression]:
    """Return what `change`, which names CONTAINER and AT, is at a place."""

    def at_place(p: Expression) -> Expression:
        made = expression([string(p.at)]).map(bound(AT, change))[0]
        return expression([p.c]).map(bound(CONTAINER, made))[0]

    return at_place


def _operations(e: Expression) -> Expression:
    """Return the operations for the edit `e` of the variables of a container."""

    def entries(n: Expression) -> Expression:
        return e.written.filter(lambda w: w.name == n)

    def path(i: Expression) -> Expression:
        return string(e.at) + "/env/" + string(i)

    def is_replaced(i: Expression, n: Expression) -> Expression:
        # In place of the first of its name.
        return all_of(entries(n).size() > 0, e.names.indexOf(n) == i)

    def is_removed(i: Expression, n: Expression) -> Expression:
        is_later = all_of(entries(n).size() > 0, not_(e.names.indexOf(n) == i))
        return any_of(is_in(n, e.removed), is_later)

    replaced = e.names.transformList(
        lambda i, n: (
            is_replaced(i, n),
            construct("JSONPatch", op="replace", path=path(i), value=entries(n)[0]),
        )
    )
    # From the last to the first, as each removal moves those behind it.
    removed = (
        e.names.transformList(lambda i, n: (is_removed(i, n), i))
        .reverse()
        .map(lambda i: construct("JSONPatch", op="remove", path=path(i)))
    )
    new = e.written.filter(lambda w: not_(is_in(w.name, e.names)))
    lacks_env = all_of(new.size() > 0, not_(has(e.raw, "env")))
    created = choose((lacks_env, [add(string(e.at) + "/env", [])]), otherwise=[])
    added = (
        new.map(lambda w: w.name)
        .distinct()
        .map(lambda n: add(string(e.at) + "/env/-", entries(n)[0]))
    )
    return replaced + removed + created + added
