"""The rules of a policy in CEL: what each says at one action, and what it fixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rules.engine.evaluation import ISOLATION_FAMILIES
from rules.engine.rule_set import ActiveRule, PolicyException, RuleSet
from rules.finding import Action, FixScope, sha256_hex
from rules.gpu.components import FOR_AGENTS
from rules.in_process.patterns import matches_any, regex_of
from rules.in_process.statement import Mutation, Statement, cel, concat
from rules.objects.pod import Pod
from rules.rule import Rule, load_module

NOT_ABOUT_PODS = "it is about other objects than pods"
NOT_WRITTEN = "it is not written in CEL yet"
NO_BYPASS = "it finds mistakes, by which a pod gets no more GPUs than without them"
NO_FIX, ONLY_BY_WEBHOOK = "it has no fix", "only the webhook makes this fix"


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

    @property
    def constants(self) -> Mapping[str, str]:
        """The constants that its statements name, in CEL."""
        options = {
            name: cel(list(map(regex_of, value)) if isinstance(value, tuple) else value)
            for name, value in self.active.options.items()
        }
        facts = (item for statement in self.statements for item in statement.facts.items())
        return options | {name: cel(value) for name, value in facts}

    @property
    def words(self) -> Mapping[str, str]:
        """The variables that its statements name."""
        return dict(item for statement in self.statements for item in statement.words.items())


def reason_against(rule: Rule[Any]) -> str:
    """Return why `rule` is not exported; empty if it is."""
    said = getattr(load_module(rule), "in_process", None)
    if isinstance(said, str):
        return said
    if said is not None:
        return ""
    if rule.subject is not Pod:
        return NOT_ABOUT_PODS
    return NOT_WRITTEN if rule.family in ISOLATION_FAMILIES else NO_BYPASS


def left_out(rule: Rule[Any]) -> tuple[str, ...]:
    """Return what the statements of `rule` leave out, in sentences without a dot."""
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


class FixingRule(NamedTuple):
    """A rule with its fixes in CEL, those that the policy makes."""

    active: ActiveRule
    mutations: tuple[Mutation, ...]

    @property
    def name(self) -> str:
        """The name of the rule."""
        return self.active.rule.name

    def tests(self, mutation: Mutation, exceptions: ExceptionVariables) -> str:
        """Return, as CEL, whether `mutation` is made."""
        tests = [f"({mutation.where})"]
        if self.active.fix_scope is not FixScope.ALL and mutation.is_safe != "true":
            tests.append(f"({mutation.is_safe})")
        if self.active.suppressible:
            tests.insert(0, f"!({cel(self.name)} in $excused)")
        if accepted := exceptions.accepts(self.name, mutation.each, mutation.where):
            tests.append(f"!{accepted}")
        return " && ".join(tests)


def reason_against_fix(rule: Rule[Any]) -> str:
    """Return why the fix of `rule` is not exported; empty if it is."""
    if hasattr(load_module(rule), "in_process_fix"):
        return ""
    if rule.subject is not Pod:
        return NOT_ABOUT_PODS
    return ONLY_BY_WEBHOOK if "Fix safety" in rule.documentation else NO_FIX


def fixing_rules(rules: RuleSet) -> list[FixingRule]:
    """Those of `rules` whose fixes are made, and can be said in CEL, in their order."""
    found = []
    for active in rules.rules:
        if active.fix_scope is FixScope.NONE or reason_against_fix(active.rule):
            continue
        made = load_module(active.rule).in_process_fix(active.options, rules.profile)
        is_whole = active.fix_scope is FixScope.ALL
        if mutations := tuple(each for each in made if is_whole or each.is_safe != "false"):
            found.append(FixingRule(active, mutations))
    return found


def findings_at(
    rule: ExportedRule,
    action: Action,
    exceptions: ExceptionVariables,
    rules: Iterable[ExportedRule],
) -> str:
    """The texts of what `rule` finds with `action`, as CEL: a list of lists; empty if nothing.

    `rules` are all that are exported: some of them supersede others.
    """
    others = (other for other in rules if rule.name in other.active.rule.supersedes)
    silent = [test for other in others for test in _volumes(other, rule)]
    parts = []
    for statement in rule.statements:
        level = _at_level(statement.action, rule.active.action, action)
        if level == "false":
            continue
        tests = [f"({statement.where})", *([level] if level != "true" else [])]
        if rule.active.suppressible:
            tests.insert(0, f"!({cel(rule.name)} in $excused)")
        tests += [f"!({test})" for test in silent]
        if accepted := exceptions.accepts(rule.name, statement.each, statement.where):
            tests.append(f"!{accepted}")
        text = concat(cel(f"[{rule.name}] "), statement.message, '"; "', statement.help)
        if rule.active.rule.family in ISOLATION_FAMILIES:
            text += f' + ($isDaemon ? {cel(FOR_AGENTS)} : "")'
        parts.append(_LOOPS[statement.each].format(where=" && ".join(tests), text=text))
    return " + ".join(parts)


def _volumes(superseding: ExportedRule, rule: ExportedRule) -> Iterator[str]:
    """Yield CEL that tests whether a statement of `superseding` reports the volume too."""
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
    "label": "[$metadata.?labels.orValue({{}}).filter(a, {where}).map(a, {text})]",
    "changedAnnotation": "[$changedAnnotations.filter(a, {where}).map(a, {text})]",
    "changedLabel": "[$changedLabels.filter(a, {where}).map(a, {text})]",
    "mount": "$containers.map(c, c.raw.?volumeMounts.orValue([]).filter(m, {where})"
    ".map(m, {text}))",
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


_ABOUT_PODS = frozenset({"pod", "annotation", "label", "changedAnnotation", "changedLabel"})


def _at_level(finding: str, rule: Action, wanted: Action) -> str:
    """Return, as CEL, whether the weaker of a finding's action and its rule's is `wanted`."""
    words = [a.word for a in (Action.DENY, Action.WARN, Action.AUDIT) if min(a, rule) is wanted]
    if finding in {cel(a.word) for a in Action}:
        return "true" if finding in {cel(word) for word in words} else "false"
    # A text that the expression does not have is none of its results.
    words = [word for word in words if cel(word) in finding]
    return f"{finding} in {cel(words)}" if words else "false"


class ExceptionVariables:
    """The variables by which statements ask whether an exception accepts what they find.

    The patterns of an exception are in a policy once, however many statements it concerns: a
    variable has the names of the containers that it accepts findings about. No two containers of a
    pod have the same name, because the API server refuses such a pod before it asks policies.
    """

    def __init__(self, exceptions: Sequence[PolicyException]) -> None:
        self._exceptions = exceptions

    def of_rules(self, rules: Iterable[ExportedRule | FixingRule]) -> Iterator[tuple[str, str]]:
        """The variables that `findings_at` refers to: names, and texts in CEL."""
        groups = list(filter(None, dict.fromkeys(self._group(rule.name) for rule in rules)))
        for number in sorted({number for group in groups for number in group}):
            yield f"exception{number}", _accepted_containers(self._exceptions[number])
        for group in groups:
            listed = ", ".join(f"$exception{number}" for number in group)
            # Of many exceptions few concern a pod, and only these cost something.
            yield _name_of_group(group), f"[{listed}].filter(names, names.size() > 0)"

    def accepts(self, rule: str, each: str, where: str) -> str:
        """Return, as CEL, whether an exception accepts what a statement finds; empty if none can.

        `each` and `where` are those of the statement.
        """
        group = self._group(rule)
        if not group:
            return ""
        if each in _ABOUT_PODS:
            accepted = "$containers.all(x, x.name in names)"
        elif each == "volume":
            mounts = f"c.mounts.exists(m, m.volume == w.name && ({where}))"
            accepted = f"$containers.all(c, !{mounts} || c.name in names)"
        else:
            accepted = "c.name in names"
        return f"${_name_of_group(group)}.exists(names, {accepted})"

    def _group(self, rule: str) -> tuple[int, ...]:
        return tuple(n for n, each in enumerate(self._exceptions) if rule in each.rules)


def _name_of_group(group: tuple[int, ...]) -> str:
    return f"exceptions{sha256_hex(repr(group))[:12]}"


def _accepted_containers(exception: PolicyException) -> str:
    """The names of the containers about which `exception` accepts findings, as CEL."""
    fits = [
        matches_any(f"c.{field}", patterns)
        for field, patterns in (("image", exception.images), ("name", exception.containers))
        if patterns
    ]
    chosen = "".join(f".filter(c, {' && '.join(f'({test})' for test in fits)})" for _ in fits[:1])
    names = f"$containers{chosen}.map(c, c.name)"
    tests = " && ".join(f"({test})" for test in _tests_of_pod(exception))
    return f"{tests} ? {names} : []" if tests else names


def _tests_of_pod(exception: PolicyException) -> Iterator[str]:
    if exception.namespaces:
        yield matches_any("request.namespace", exception.namespaces)
    if exception.kinds:
        yield matches_any("request.kind.kind", exception.kinds)
    if exception.names:
        yield matches_any('$objectMetadata.?name.orValue("")', exception.names)
    if exception.service_accounts:
        account = '[$spec.?serviceAccountName.orValue("")].map(t, t != "" ? t : "default")'
        yield f"{account}.exists(t, {matches_any('t', exception.service_accounts)})"
    if exception.expires is not None:
        # An expression knows no clock, but the API server has just written when it made the object.
        last = f'timestamp("{exception.expires.isoformat()}T23:59:59.999Z")'
        yield f"timestamp($objectMetadata.creationTimestamp) <= {last}"
