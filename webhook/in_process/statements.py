"""The rules of a policy in CEL: what each says at one action, and which cannot be said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rules.engine.evaluation import ISOLATION_FAMILIES
from rules.engine.rule_set import ActiveRule, PolicyException, RuleSet
from rules.finding import Action
from rules.gpu.components import FOR_AGENTS
from rules.in_process.statement import Statement, cel, concat
from rules.in_process.vocabulary import matches_any
from rules.objects.pod import Pod
from rules.rule import Rule, load_module

NOT_ABOUT_PODS = "it is about other objects than pods"
NOT_WRITTEN = "it is not written in CEL yet"


class ExportedRule(NamedTuple):
    """A rule with what it says in CEL."""

    active: ActiveRule
    statements: tuple[Statement, ...]

    @property
    def name(self) -> str:
        """The name of the rule."""
        return self.active.rule.name

    @property
    def variable(self) -> str:
        """The name of the variable with its findings."""
        first, *others = self.name.split("-")
        return first + "".join(word.capitalize() for word in others)


def reason_against(rule: Rule[Any]) -> str:
    """Why `rule` is not exported; empty if it is."""
    said = getattr(load_module(rule), "in_process", None)
    if isinstance(said, str):
        return said
    if said is not None:
        return ""
    return NOT_WRITTEN if rule.subject is Pod else NOT_ABOUT_PODS


def left_out(rule: Rule[Any]) -> tuple[str, ...]:
    """What the statements of `rule` leave out, in sentences without a dot."""
    if reason_against(rule):
        return ()
    statements: tuple[Statement, ...] = load_module(rule).in_process()
    return tuple(dict.fromkeys(s.leaves_out for s in statements if s.leaves_out))


def exported_rules(rules: RuleSet) -> list[ExportedRule]:
    """Those of `rules` that can be said in CEL, in their order."""
    return [
        ExportedRule(active, load_module(active.rule).in_process())
        for active in rules.rules
        if not reason_against(active.rule)
    ]


def findings_at(
    rule: ExportedRule,
    action: Action,
    exceptions: Iterable[PolicyException],
    rules: Iterable[ExportedRule],
) -> str:
    """The texts of what `rule` finds with `action`, as CEL: a list of lists; empty if nothing.

    `rules` are all that are exported: some of them supersede others.
    """
    others = (other for other in rules if rule.name in other.active.rule.supersedes)
    silent = [test for other in others for test in _volumes(other, rule)]
    accepted = [e for e in exceptions if rule.name in e.rules]
    parts = []
    for statement in rule.statements:
        level = _at_level(statement.action, rule.active.action, action)
        if level == "false":
            continue
        tests = [f"({statement.where})", *([level] if level != "true" else [])]
        if rule.active.suppressible:
            tests.insert(0, f"!({cel(rule.name)} in $excused)")
        tests += [f"!({test})" for test in silent]
        tests += [f"!({_accepts(exception, statement)})" for exception in accepted]
        text = concat(cel(f"[{rule.name}] "), statement.message, '"; "', statement.help)
        if rule.active.rule.family in ISOLATION_FAMILIES:
            text += f' + ($isDaemon ? {cel(FOR_AGENTS)} : "")'
        parts.append(_LOOPS[statement.each].format(where=" && ".join(tests), text=text))
    return " + ".join(parts)


def _volumes(superseding: ExportedRule, rule: ExportedRule) -> Iterator[str]:
    """Whether `superseding` reports the volume that `rule` reports."""
    for statement in (*superseding.statements, *rule.statements):
        if statement.each != "volume":
            raise ValueError(f"{superseding.name} supersedes {rule.name} about other than volumes")
    for statement in superseding.statements:
        yield (
            f"$containers.exists(c, c.mounts.exists(m, m.volume == w.name && ({statement.where})))"
        )


_LOOPS = {
    "pod": "[[0].filter(p, {where}).map(p, {text})]",
    "annotation": "[$annotations.filter(a, {where}).map(a, {text})]",
    "container": "$containers.map(c, [0].filter(p, {where}).map(p, {text}))",
    # The first mount of the volume in the first container that has one.
    "volume": "$hostVolumes.map(w, [$containers.map(c, c.mounts.filter(m, m.volume == w.name"
    ' && {where}).map(m, {{"c": dyn(c), "m": dyn(m)}})).filter(found, found.size() > 0)]'
    ".filter(found, found.size() > 0).map(found, [found[0][0].c].map(c, [found[0][0].m]"
    ".map(m, {text})[0])[0]))",
    "completed": "$containers.map(c, c.prefixes.size() == 0 ? []"
    " : variables.completed.filter(x, {where}).map(x, {text}))",
    "variable": "$containers.map(c, c.variables.filter(v, {where}).map(v, {text}))",
    "deviceList": "$containers.map(c, c.deviceLists.filter(l, {where}).map(l, {text}))",
}


def _at_level(finding: str, rule: Action, wanted: Action) -> str:
    """Whether the weaker one of the actions of a finding and of its rule is `wanted`, as CEL."""
    words = [a.word for a in (Action.DENY, Action.WARN, Action.AUDIT) if min(a, rule) is wanted]
    if finding in {cel(a.word) for a in Action}:
        return "true" if finding in {cel(word) for word in words} else "false"
    # A text that the expression does not have is none of its results.
    words = [word for word in words if cel(word) in finding]
    return f"{finding} in {cel(words)}" if words else "false"


def _accepts(exception: PolicyException, statement: Statement) -> str:
    """Whether `exception` accepts a finding of `statement`, as CEL."""
    return " && ".join(f"({test})" for test in _tests(exception, statement)) or "true"


def _tests(exception: PolicyException, statement: Statement) -> Iterator[str]:
    if exception.namespaces:
        yield matches_any("request.namespace", exception.namespaces)
    if exception.kinds:
        yield matches_any("request.kind.kind", exception.kinds)
    if exception.names:
        yield matches_any('$objectMetadata.?name.orValue("")', exception.names)
    if exception.service_accounts:
        account = '[$spec.?serviceAccountName.orValue("")].map(t, t != "" ? t : "default")'
        yield f"{account}.exists(t, {matches_any('t', exception.service_accounts)})"
    is_whole = statement.each in {"pod", "annotation"}
    container = "x" if is_whole else "c"
    tests = []
    if exception.images:
        tests.append(matches_any(f"{container}.image", exception.images))
    if exception.containers:
        tests.append(matches_any(f"{container}.name", exception.containers))
    if tests:
        fits = " && ".join(f"({test})" for test in tests)
        if statement.each == "volume":
            mounts = f"c.mounts.exists(m, m.volume == w.name && ({statement.where}))"
            yield f"$containers.all(c, !{mounts} || ({fits}))"
        else:
            yield f"$containers.all(x, {fits})" if is_whole else fits
    if exception.expires is not None:
        # An expression knows no clock, but the API server has just written when it made the object.
        last = f'timestamp("{exception.expires.isoformat()}T23:59:59.999Z")'
        yield f"timestamp($objectMetadata.creationTimestamp) <= {last}"
