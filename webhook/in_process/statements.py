"""The rules of a policy in CEL: what each says at one action, and what it fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from rules.base.text_matching import matches_any as matches_any_text
from rules.engine.evaluation import ISOLATION_FAMILIES
from rules.engine.rule_set import ActiveRule, PolicyException, RuleSet
from rules.finding import Action, FixScope, sha256_hex
from rules.in_process.components import KIND
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
    expression,
    get,
    is_in,
    name,
    not_,
    record,
    text,
)
from rules.in_process.patterns import matches_any, regex_of
from rules.in_process.statement import (
    COMPLETED,
    CONTAINER,
    DEVICE_LIST,
    KEY,
    MOUNT,
    VARIABLE,
    VOLUME,
    KeyStatement,
    Mutation,
    Statement,
    camel_case,
    option_name,
)
from rules.objects.kubernetes_objects import KubernetesObject
from rules.objects.pod import Pod
from rules.profile.profile import Profile
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
        """The beginning of the names of the variables with its findings."""
        return camel_case(self.name)

    @property
    def constants(self) -> Mapping[str, str]:
        """The constants that its statements name, in CEL."""
        values = {
            option_name(self.name, word): list(map(regex_of, value))
            if isinstance(value, tuple)
            else value
            for word, value in self.active.options.items()
        }
        for statement in self.statements:
            values |= statement.facts
        return {word: str(expression(value)) for word, value in values.items()}

    @property
    def words(self) -> Mapping[str, Value]:
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


def left_out(active: ActiveRule, profile: Profile) -> tuple[str, ...]:
    """Return what the statements of a rule leave out, in sentences without a dot."""
    if reason_against(active.rule) or active.rule.subject is not Pod:
        return ()
    statements = _statements(active, profile)
    return tuple(dict.fromkeys(s.leaves_out for s in statements if s.leaves_out))


def _statements(active: ActiveRule, profile: Profile) -> tuple[Statement, ...]:
    """Return the statements of a rule; those of some depend on its options and on the profile."""
    say = load_module(active.rule).in_process
    said: tuple[Statement, ...] = (
        say(active.options, profile) if say.__code__.co_argcount else say()
    )
    return said


def exported_rules(rules: RuleSet) -> list[ExportedRule]:
    """Those of `rules` about pods that can be said in CEL, in their order."""
    return [
        ExportedRule(active, _statements(active, rules.profile))
        for active in rules.rules
        if active.rule.subject is Pod and not reason_against(active.rule)
    ]


def exported_key_rules(rules: RuleSet) -> list[tuple[ActiveRule, KeyStatement]]:
    """Those of `rules` about keys of ConfigMaps and Secrets, with what they say in CEL."""
    return [
        (active, load_module(active.rule).in_process(active.options, rules.profile))
        for active in rules.rules
        if active.rule.subject is KubernetesObject and not reason_against(active.rule)
    ]


def exported_names(rules: RuleSet) -> list[str]:
    """The names of those of `rules` that can be said in CEL, in their order."""
    return [active.rule.name for active in rules.rules if not reason_against(active.rule)]


class FixingRule(NamedTuple):
    """A rule with its fixes in CEL, those that the policy makes."""

    active: ActiveRule
    mutations: tuple[Mutation, ...]

    @property
    def name(self) -> str:
        """The name of the rule."""
        return self.active.rule.name

    def test(self, mutation: Mutation, exceptions: ExceptionVariables) -> Expression:
        """Return whether `mutation` is made."""
        tests = [mutation.where]
        if self.active.fix_scope is not FixScope.ALL and mutation.is_safe is not True:
            tests.append(mutation.is_safe)
        if self.active.suppressible:
            tests.insert(0, not_(is_in(self.name, OBJECT.excused)))
        accepted = exceptions.accepts(self.name, mutation.each, mutation.where)
        if accepted is not None:
            tests.append(not_(accepted))
        return all_of(*tests)


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
        if mutations := tuple(each for each in made if is_whole or each.is_safe is not False):
            found.append(FixingRule(active, mutations))
    return found


def findings_at(
    rule: ExportedRule,
    action: Action,
    exceptions: ExceptionVariables,
    rules: Iterable[ExportedRule],
) -> list[Expression]:
    """Return the texts of what `rule` finds with `action`: lists of lists of texts.

    `rules` are all that are exported: some of them supersede others.
    """
    others = (other for other in rules if rule.name in other.active.rule.supersedes)
    silent = [test for other in others for test in _volumes(other, rule)]
    found = []
    for statement in rule.statements:
        level = _at_level(statement.action, rule.active.action, action)
        if level is False:
            continue
        tests = [statement.where, *([level] if level is not True else [])]
        if rule.active.suppressible:
            tests.insert(0, not_(is_in(rule.name, OBJECT.excused)))
        tests += [not_(test) for test in silent]
        accepted = exceptions.accepts(rule.name, statement.each, statement.where)
        if accepted is not None:
            tests.append(not_(accepted))
        words = text(f"[{rule.name}] {statement.message}; {statement.help}")
        if rule.active.rule.family in ISOLATION_FAMILIES:
            words += OBJECT.forAgents
        found.append(_LOOPS[statement.each](all_of(*tests), words))
    return found


def _volumes(superseding: ExportedRule, rule: ExportedRule) -> Iterator[Expression]:
    """Yield whether a statement of `superseding` reports the volume too."""
    for statement in (*superseding.statements, *rule.statements):
        if statement.each != "volume":
            raise ValueError(f"{superseding.name} supersedes {rule.name} about other than volumes")
    for statement in superseding.statements:
        mounts_it = _mounts_of_volume(statement.where, "exists")
        yield OBJECT.containers.exists(bound(CONTAINER, mounts_it))


def _mounts_of_volume(where: Value, macro: str) -> Expression:
    """Return what `macro`, `exists` or `filter`, says of the container's mounts of the volume."""
    test = all_of(MOUNT.volume == VOLUME.name, where)
    found: Expression = getattr(CONTAINER.mounts, macro)(bound(MOUNT, test))
    return found


_Loop: TypeAlias = Callable[[Value, Value], Expression]


def _each(elements: Value, element: Expression) -> _Loop:
    """Return a function that says words about those of `elements` that a test fits."""

    def loop(where: Value, words: Value) -> Expression:
        return expression(elements).filter(bound(element, where)).map(bound(element, words))

    return loop


def _each_in_list(elements: Value, element: Expression) -> _Loop:
    """Return the loop over `elements` of the pod, whose texts are one list."""
    each = _each(elements, element)
    return lambda where, words: expression([each(where, words)])


def _each_in_containers(elements: Value, element: Expression) -> _Loop:
    """Return the loop over `elements` of each container."""
    each = _each(elements, element)
    return lambda where, words: OBJECT.containers.map(bound(CONTAINER, each(where, words)))


def _each_completed(where: Value, words: Value) -> Expression:
    variables = _each(POLICY.completed, COMPLETED)(where, words)
    has_none = CONTAINER.prefixes.size() == 0
    return OBJECT.containers.map(bound(CONTAINER, choose((has_none, []), otherwise=variables)))


def _each_volume(where: Value, words: Value) -> Expression:
    """Say `words` about the first mount of each volume, in the first container that has one."""
    mounts = _mounts_of_volume(where, "filter").map(bound(MOUNT, record(c=CONTAINER, m=MOUNT)))
    mounting = OBJECT.containers.map(bound(CONTAINER, mounts)).filter(
        lambda found: found.size() > 0
    )

    def words_about_first(found: Expression) -> Expression:
        first = found[0][0]
        about_mount = expression([first.m]).map(bound(MOUNT, words))[0]
        return expression([first.c]).map(bound(CONTAINER, about_mount))[0]

    texts = expression([mounting]).filter(lambda found: found.size() > 0).map(words_about_first)
    return OBJECT.hostVolumes.map(bound(VOLUME, texts))


_ONCE = name("p")
_LOOPS: Mapping[str, _Loop] = {
    "pod": _each_in_list([0], _ONCE),
    "annotation": _each_in_list(OBJECT.annotations, KEY),
    "label": _each_in_list(get(OBJECT.metadata, "labels", {}), KEY),
    "changedAnnotation": _each_in_list(OBJECT.changedAnnotations, KEY),
    "changedLabel": _each_in_list(OBJECT.changedLabels, KEY),
    "mount": _each_in_containers(get(CONTAINER.raw, "volumeMounts", []), MOUNT),
    "container": _each_in_containers([0], _ONCE),
    "volume": _each_volume,
    "completed": _each_completed,
    "variable": _each_in_containers(CONTAINER.variables, VARIABLE),
    "deviceList": _each_in_containers(CONTAINER.deviceLists, DEVICE_LIST),
}


_ABOUT_PODS = frozenset({"pod", "annotation", "label", "changedAnnotation", "changedLabel"})


def _at_level(finding: Value, rule: Action, wanted: Action) -> Value:
    """Return whether the weaker of a finding's action and its rule's is `wanted`."""
    words = [a.word for a in (Action.DENY, Action.WARN, Action.AUDIT) if min(a, rule) is wanted]
    if isinstance(finding, str):
        return finding in words
    # A text that the expression does not have is none of its results.
    words = [word for word in words if str(expression(word)) in str(finding)]
    return is_in(finding, words) if words else False


class ExceptionVariables:
    """The variables by which statements ask whether an exception accepts what they find.

    The patterns of an exception are in a policy once, however many statements it concerns: a
    variable has the names of the containers that it accepts findings about. No two containers of a
    pod have the same name, because the API server refuses such a pod before it asks policies.
    """

    def __init__(self, exceptions: Sequence[PolicyException]) -> None:
        self._exceptions = exceptions

    def of_rules(
        self, rules: Iterable[ExportedRule | FixingRule]
    ) -> Iterator[tuple[str, Expression]]:
        """Yield the variables that `findings_at` refers to: names and expressions."""
        groups = list(filter(None, dict.fromkeys(self._group(rule.name) for rule in rules)))
        for number in sorted({number for group in groups for number in group}):
            yield f"exception{number}", _accepted_containers(self._exceptions[number])
        for group in groups:
            listed = expression([getattr(OBJECT, f"exception{number}") for number in group])
            # Of many exceptions few concern a pod, and only these cost something.
            yield _name_of_group(group), listed.filter(lambda names: names.size() > 0)

    def accepts(self, rule: str, each: str, where: Value) -> Expression | None:
        """Return whether an exception accepts what a statement finds; None if none can.

        `each` and `where` are those of the statement.
        """
        group = self._group(rule)
        if not group:
            return None

        def accepts(names: Expression) -> Expression:
            is_named = is_in(CONTAINER.name, names)
            if each in _ABOUT_PODS:
                return OBJECT.containers.all(lambda x: is_in(x.name, names))
            if each == "volume":
                mounts_it = _mounts_of_volume(where, "exists")
                accepted = any_of(not_(mounts_it), is_named)
                return OBJECT.containers.all(bound(CONTAINER, accepted))
            return is_named

        variable: Expression = getattr(OBJECT, _name_of_group(group))
        return variable.exists(accepts)

    def _group(self, rule: str) -> tuple[int, ...]:
        return tuple(n for n, each in enumerate(self._exceptions) if rule in each.rules)


def _name_of_group(group: tuple[int, ...]) -> str:
    return f"exceptions{sha256_hex(repr(group))[:12]}"


def _accepted_containers(exception: PolicyException) -> Expression:
    """Return the names of the containers about which `exception` accepts findings."""
    containers = OBJECT.containers
    if exception.images or exception.containers:
        containers = containers.filter(lambda c: _is_accepted(c, exception))
    names = containers.map(lambda c: c.name)
    tests = list(_tests_of_pod(exception))
    return choose((all_of(*tests), names), otherwise=[]) if tests else names


def _is_accepted(c: Expression, exception: PolicyException) -> Expression:
    values = ((c.image, exception.images), (c.name, exception.containers))
    return all_of(*(matches_any(value, patterns) for value, patterns in values if patterns))


def _tests_of_pod(exception: PolicyException) -> Iterator[Expression]:
    yield from _tests_of_object(exception)
    if exception.service_accounts:
        yield matches_any(OBJECT.account, exception.service_accounts)


def accepts_keys(exception: PolicyException) -> Value:
    """Return whether `exception` accepts findings about keys of the ConfigMap or Secret.

    It has neither containers nor a service account.
    """
    accounts = exception.service_accounts
    if exception.names_containers or (accounts and not matches_any_text(accounts, "")):
        return False
    return all_of(*_tests_of_object(exception))


def _tests_of_object(exception: PolicyException) -> Iterator[Expression]:
    if exception.namespaces:
        yield matches_any(REQUEST.namespace, exception.namespaces)
    if exception.kinds:
        yield matches_any(KIND, exception.kinds)
    if exception.names:
        yield matches_any(get(OBJECT.objectMetadata, "name", ""), exception.names)
    if exception.expires is not None:
        # An expression knows no clock, but the API server has just written when it made the object.
        timestamp = name("timestamp")
        last = timestamp(f"{exception.expires.isoformat()}T23:59:59.999Z")
        yield timestamp(OBJECT.objectMetadata.creationTimestamp) <= last
