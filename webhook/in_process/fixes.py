"""The MutatingAdmissionPolicy of a policy, which fixes pods, and its binding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from policies.policy import Policy
from rules.finding import Action
from rules.gpu.visibility import ALTERNATIVE_VARIABLE, NVIDIA_VISIBLE_DEVICES
from rules.in_process.evidence import evidence
from rules.in_process.mutation import mutation_words
from rules.in_process.statement import HIDE, REMOVE, add, cel
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
    with_digest,
)
from webhook.in_process.statements import (
    ONLY_BY_WEBHOOK,
    ExceptionVariables,
    FixingRule,
    fixing_rules,
    reason_against_fix,
)
from webhook.registration import mode_selectors

NAME = "gpuward-fixes"
"""The name of the policy."""


def fix_objects(policy: Policy, options: ExportOptions) -> Iterator[dict[str, Any]]:
    """The policy and its binding, like the webhook for namespaces in mode deny.

    Nothing, if the policy fixes nothing or no namespace can be in this mode.
    """
    rules = fixing_rules(policy.rule_set())
    selectors = [s for mode, s in mode_selectors(options.registration) if mode is Action.DENY]
    if not rules or not selectors:
        return
    yield with_digest(_policy(policy, rules, options))
    for selector in selectors:
        yield with_digest(_binding(selector))


def _policy(policy: Policy, rules: Sequence[FixingRule], options: ExportOptions) -> dict[str, Any]:
    patch = resolve(_patch(rules, ExceptionVariables(policy.exceptions)), old=False)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {
            "name": NAME,
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


def _binding(selector: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": f"{NAME}-in-mode-deny", "labels": labels()},
        "spec": {
            "policyName": NAME,
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
    texts = {
        "excused": excused(policy),
        "isSkipped": skipped(policy),
        **dict(exceptions.of_rules(rules)),
        **words,
        "edits": _edits(rules, exceptions, policy.profile),
    }
    for name, text in texts.items():
        yield Variable(name, resolve(text, old=False))


def _edits(rules: Sequence[FixingRule], exceptions: ExceptionVariables, profile: Profile) -> str:
    """Of each container the names of variables that are removed, and entries that are written."""
    removed, written = [], []
    for rule in rules:
        for mutation in rule.mutations:
            test = rule.tests(mutation, exceptions)
            found = f"c.variables.filter(v, {test})"
            if mutation.each == "variable" and mutation.change == REMOVE:
                removed.append(f"{found}.map(v, string(v.name))")
            elif mutation.each == "variable" and mutation.change == HIDE:
                without = f"{found}.filter(v, v.facts.hidden.size() == 0)"
                removed.append(f"{without}.map(v, string(v.name))")
                entry = '{"name": string(v.name), "value": string(v.facts.hidden[0])}'
                written.append(f"{found}.filter(v, v.facts.hidden.size() > 0).map(v, {entry})")
            elif mutation.change == HIDE:
                written.append(f"(({test}) ? {_hidden(profile)} : [])")
    fields = (
        f'"at": dyn(p.at), "raw": dyn(c.raw),'
        ' "names": dyn(c.raw.?env.orValue([]).map(x, string(x.name))),'
        f' "removed": dyn({" + ".join(removed) or "[]"}),'
        f' "written": dyn({" + ".join(written) or "[]"})'
    )
    return (
        f"$places.map(p, [p.c].map(c, {{{fields}}})[0])"
        ".filter(e, e.removed.size() + e.written.size() > 0)"
    )


def _hidden(profile: Profile) -> str:
    """The entry that hides all GPUs of a container that sets nothing; none if there is none."""
    known = profile.visible_variable(NVIDIA_VISIBLE_DEVICES) or ALTERNATIVE_VARIABLE
    value = known.hiding_value
    return "[]" if value is None else cel([{"name": NVIDIA_VISIBLE_DEVICES, "value": value}])


def _patch(rules: Sequence[FixingRule], exceptions: ExceptionVariables) -> str:
    """The operations. Nothing is fixed of a pod that is too large, or for which no rule is run."""
    # An entry is written in place of the first of its name, and else at the end.
    at, entries = 'string(e.at) + "/env/" + string(i)', "e.written.filter(w, w.name == n)"
    is_written, is_first = f"{entries}.size() > 0", "e.names.indexOf(n) == i"
    replaced = (
        f"e.names.transformList(i, n, {is_written} && {is_first},"
        f' JSONPatch{{op: "replace", path: {at}, value: {entries}[0]}})'
    )
    # From the last to the first, as each removal moves those behind it.
    removed = (
        f"e.names.transformList(i, n, n in e.removed || ({is_written} && !({is_first})), i)"
        f'.reverse().map(i, JSONPatch{{op: "remove", path: {at}}})'
    )
    new = "e.written.filter(w, !(w.name in e.names))"
    create, end = add('string(e.at) + "/env"', "[]"), 'string(e.at) + "/env/-"'
    added = (
        f"({new}.size() > 0 && !e.raw.?env.hasValue() ? [{create}] : [])"
        f" + {new}.map(w, w.name).distinct().map(n, {add(end, f'{entries}[0]')})"
    )
    parts = [f"$edits.map(e, {replaced} + {removed} + {added}).flatten()"]
    for rule in rules:
        for mutation in rule.mutations:
            if mutation.change in (REMOVE, HIDE):
                continue
            test = rule.tests(mutation, exceptions)
            if mutation.each == "pod":
                parts.append(f"(({test}) ? {mutation.change} : [])")
            else:
                change = f"[string(p.at)].map(at, ({test}) ? {mutation.change} : [])[0]"
                parts.append(f"$places.map(p, [p.c].map(c, {change})[0]).flatten()")
    return f"$isSkipped || $tooLarge ? [] : {' + '.join(parts)}"
