"""The words of fixes in CEL, beside those of statements.

- `OBJECT.places` are the containers: each has `c`, as in statements, and `at`, its JSON Pointer.
- `OBJECT.requested` has the names of the GPU resources that the pod requests, and
  `OBJECT.fractionResources` those of the nodes with the parts of GPUs that its annotations ask for.
- `OBJECT.mayBePlaced` is `placement_skip_reason(pod) is None`, `OBJECT.mayNameScheduler` that of
  `scheduler_skip_reason`.

Policies that fix need Kubernetes 1.36, so they may use more functions than statements.
"""

from collections.abc import Iterable, Iterator

from rules.in_process.expression import (
    OBJECT,
    Expression,
    Value,
    all_of,
    any_of,
    choose,
    get,
    is_in,
    not_,
    record,
    string,
)
from rules.in_process.nodes import PREFERRED_TERMS, REQUIRED_TERMS, scheduler, tolerates
from rules.in_process.patterns import matches_any
from rules.in_process.requests import fraction_resources
from rules.in_process.statement import CONTAINER, HIDE, REMOVE, VARIABLE, Mutation
from rules.in_process.vocabulary import Variable, resolve
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.placement.tolerations import words_of_key
from rules.profile.profile import NodeAffinity, Profile, Scheduler, Taint


def mutation_words(profile: Profile) -> Iterator[Variable]:
    """Yield the variables of fixes; those of `vocabulary` come before them."""
    number = get(OBJECT.spec, "initContainers", []).size()
    known = sorted({DEFAULT_SCHEDULER, *profile.scheduler_names})

    def place(i: Expression, c: Expression) -> Expression:
        init = "/spec/initContainers/" + string(i)
        app = "/spec/containers/" + string(i - number)
        return record(c=c, at=choose((i < number, init), otherwise=app))

    def is_daemon_set(o: Expression) -> Expression:
        return all_of(o.kind == "DaemonSet", get(o, "controller", False))

    def names_node(t: Expression) -> Expression:
        return get(t, "matchFields", []).exists(lambda f: f.key == "metadata.name")

    values: dict[str, Value] = {
        "places": OBJECT.containers.transformList(place),
        "requested": (
            OBJECT.requesting.map(lambda k: k.devices.map(lambda d: string(d.name))).flatten()
        ),
        "fractionResources": fraction_resources(profile),
        "mayNameScheduler": get(OBJECT.spec, "nodeName", "") == "",
        "mayBePlaced": all_of(
            OBJECT.mayNameScheduler,
            not_(get(OBJECT.metadata, "ownerReferences", []).exists(is_daemon_set)),
            not_(REQUIRED_TERMS.exists(names_node)),
            get(OBJECT.spec, "schedulingGates", []).size() == 0,
            is_in(scheduler(), known),
        ),
    }
    for word, value in values.items():
        yield Variable(word, resolve(value, old=False))


def requests_any(patterns: Iterable[str]) -> Expression:
    """Return whether the pod requests a resource whose name matches one of `patterns`."""
    return OBJECT.requested.exists(lambda n: matches_any(n, patterns))


def is_about(fact: Taint | NodeAffinity | Scheduler) -> Expression:
    """Return whether `matching_resource` finds a resource."""
    if isinstance(fact, Scheduler):
        others = [is_in(key, OBJECT.annotations) for key in fact.annotations]
    else:
        others = [OBJECT.fractionResources.exists(lambda n: matches_any(n, fact.resources))]
    return any_of(requests_any(fact.resources), *others)


def label_keys() -> Expression:
    """`referenced_label_keys`."""

    def keys(t: Expression, path: str) -> Expression:
        return get(t, path, []).map(lambda x: string(x.key))

    required = REQUIRED_TERMS.map(lambda t: keys(t, "matchExpressions")).flatten()
    preferred = PREFERRED_TERMS.map(lambda t: keys(t, "preference.matchExpressions")).flatten()
    selector = get(OBJECT.spec, "nodeSelector", {}).map(lambda k: string(k))
    return selector + required + preferred


def is_meant_for(toleration: Expression, taint: Taint) -> Expression:
    """Return whether `toleration` tolerates `taint` or is a misspelling of that.

    `misspelt_toleration` finds the same misspellings.
    """
    words = (
        toleration.key.lowerAscii()
        .findAll("[a-z0-9]+")
        .filter(lambda w: w != "com")
        .map(lambda w: choose((w.endsWith("s"), w.substring(0, w.size() - 1)), otherwise=w))
    )
    is_misspelt = any_of(toleration.key == taint.key, words == words_of_key(taint.key))
    is_meant = all_of(get(toleration, "key", "") != "", is_misspelt)
    return any_of(tolerates(toleration, taint), is_meant)


MAX_WORDS = 100
"""With more words in its command, no fix takes a variable from a container."""
MAX_TEXT_CHARACTERS = 20_000
"""With more characters in its command and the values of its variables, no fix does so."""


def visibility_mutations(where: Value) -> tuple[Mutation, ...]:
    """`visibility_fix` of the variables that `where` fits."""
    from_plugin = all_of(CONTAINER.requestsGpu, CONTAINER.fromPlugin)
    is_removal_safe = all_of(VARIABLE.isForRequest, not_(_is_referred_to()))
    is_hiding_safe = all_of(CONTAINER.requestsGpu, VARIABLE.isForRequest)
    return (
        Mutation("variable", all_of(where, from_plugin), REMOVE, is_removal_safe),
        Mutation("variable", all_of(where, not_(from_plugin)), HIDE, is_hiding_safe),
    )


def _is_referred_to() -> Expression:
    """`_is_referred_to`; a container with too much to search counts as one that refers to it."""
    raw = CONTAINER.raw
    words = get(raw, "command", []) + get(raw, "args", [])
    values = get(raw, "env", []).map(lambda e: get(e, "value", ""))
    texts = words + values
    reference = "$(" + VARIABLE.name + ")"
    return any_of(
        words.size() > MAX_WORDS,
        texts.map(lambda t: t.size()).sum() > MAX_TEXT_CHARACTERS,
        texts.exists(lambda t: t.contains(reference)),
    )
