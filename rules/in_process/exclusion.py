"""Twins of `rules.placement.exclusion`: what keeps a pod off GPU nodes, in CEL."""

from collections.abc import Iterator, Mapping, Sequence

from rules.gpu.claims import ANY_CLASS, OTHER_VENDOR
from rules.in_process.components import IS_POD
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
    construct,
    dyn,
    entry,
    get,
    has,
    is_in,
    let,
    not_,
    optional,
    string,
)
from rules.in_process.nodes import REQUIRED_TERMS, tolerates
from rules.in_process.patterns import matches_any
from rules.in_process.requests import is_class, unknown_devices
from rules.in_process.statement import add, created, dynamic
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.placement.exclusion import (
    EFFECTS_OF_WILDCARDS,
    KUBERNETES_TAINTS,
    NodeLabels,
    exclusion,
    toleration_of,
)
from rules.placement.node_affinity import REQUIRED_AFFINITY
from rules.profile.profile import (
    POSITIVE_NUMBER_PATTERN,
    SHARE_LABEL_VALUE,
    Profile,
    ShareRequest,
)

_SELECTOR = get(OBJECT.spec, "nodeSelector", {})
_TOLERATIONS = get(OBJECT.spec, "tolerations", [])


def exclusion_words(
    labels: NodeLabels, profile: Profile, other_devices: Sequence[str] = ()
) -> Mapping[str, Value]:
    """Return the variables about a pod that is kept off nodes with `labels`.

    - `mayNeedGpu`: it asks for a GPU, for what may be one, or has a claim. Resources and device
      classes with the patterns `other_devices` are no GPUs; if that is every class, no claim is.
    - `selectedGpuLabel`: the label by which it selects GPU nodes; empty if it does not.
    - `mayBeKeptOff`: it neither needs a GPU nor selects GPU nodes.
    - `mayRunOnGpuNodes`: its node selector and required affinity allow such nodes.
    - `wideTolerations`: `wide_tolerations`.
    - `addedTolerations`: those that an update adds to a pod; of a changed workload, all of them.
    """
    unknown = unknown_devices()
    if other_devices:
        unknown = unknown.filter(lambda n: not_(matches_any(n, other_devices)))

    def may_be_gpu(d: Expression) -> Expression:
        is_counted = [not_(matches_any(d.name, other_devices))] if other_devices else []
        return any_of(_is_known(d), all_of(is_class(d.name), *is_counted))

    def asks(c: Expression) -> Expression:
        return any_of(c.devices.exists(may_be_gpu), c.isTarget, unknown.size() > 0)

    has_claims = get(OBJECT.spec, "resourceClaims", []).size() > 0
    claims = [] if ANY_CLASS in other_devices else [has_claims]
    may_need = any_of(*claims, *_gives_share(profile), OBJECT.containers.exists(asks))
    is_known_need = OBJECT.containers.exists(lambda c: c.devices.exists(_is_known))
    is_new = REQUEST.operation == "CREATE"
    names_node = all_of(is_new, get(OBJECT.spec, "nodeName", "") != "")
    wide = OBJECT.wideTolerations
    added = choose(
        (IS_POD, wide.filter(lambda t: not_(is_in(t, POLICY.oldWideTolerations)))), otherwise=wide
    )
    is_open = [_is_open(key, values) for key, values in labels.items()]
    return {
        "mayNeedGpu": choose((names_node, is_known_need), otherwise=may_need),
        "selectedGpuLabel": choose(
            (OBJECT.nodeLabel != "", OBJECT.nodeLabel), otherwise=_demanded_label(labels)
        ),
        "mayBeKeptOff": all_of(not_(OBJECT.mayNeedGpu), OBJECT.selectedGpuLabel == ""),
        "mayRunOnGpuNodes": any_of(*is_open),
        "wideTolerations": _TOLERATIONS.filter(lambda t: _is_wide(t, profile)),
        "addedTolerations": choose((is_new, []), otherwise=added),
    }


def _gives_share(profile: Profile) -> Iterator[Expression]:
    """Yield `Profile.gives_share` of the pod, for each scheduler."""
    scheduler = get(OBJECT.spec, "schedulerName", DEFAULT_SCHEDULER)
    for name, requests in sorted(profile.share_requests.items()):
        yield all_of(scheduler == name, any_of(*map(_asks_for_share, requests)))


def _asks_for_share(request: ShareRequest) -> Expression:
    tests = [is_in(request.annotation, OBJECT.annotations)]
    if request.label:
        labels = optional(OBJECT.metadata, "labels")
        tests.append(entry(labels, request.label, "") == SHARE_LABEL_VALUE)
    if request.is_amount:
        value = string(OBJECT.annotations[request.annotation])
        tests.append(value.matches(POSITIVE_NUMBER_PATTERN))
    return all_of(*tests)


def _is_known(d: Expression) -> Expression:
    return d.facts[0].vendor != OTHER_VENDOR


def _is_wide(t: Expression, profile: Profile) -> Expression:
    """`_is_wide` of `rules.placement.exclusion`."""
    return any_of(
        all_of(_is_wildcard(t), is_in(get(t, "effect", ""), list(EFFECTS_OF_WILDCARDS))),
        *(tolerates(t, taint) for taint in profile.taints),
    )


def _is_wildcard(t: Expression) -> Expression:
    return all_of(get(t, "key", "") == "", get(t, "operator", "") == "Exists")


def _expressions(term: Expression) -> Expression:
    return get(term, "matchExpressions", [])


def _demanded_label(labels: NodeLabels) -> Expression:
    """`demanded_label`, whose place no policy tells; empty if there is none."""

    def selector_demands(key: str, values: Sequence[str]) -> Expression:
        has_value = is_in(_SELECTOR[key], list(values)) if values else True
        return all_of(is_in(key, _SELECTOR), has_value)

    selected = [
        choose((selector_demands(key, values), [key]), otherwise=[])
        for key, values in sorted(labels.items())
    ]

    def demands(x: Expression) -> Expression:
        return any_of(*(_demands(x, key, values) for key, values in labels.items()))

    in_terms = REQUIRED_TERMS.map(
        lambda t: _expressions(t).filter(demands).map(lambda x: string(x.key))
    ).flatten()
    return let(
        concat([*selected, in_terms]),
        lambda found: choose((found.size() > 0, string(found[0])), otherwise=""),
    )


def _demands(x: Expression, key: str, values: Sequence[str]) -> Expression:
    """`_demands` of `rules.placement.exclusion`."""
    if not values:
        return all_of(x.key == key, is_in(x.operator, ["In", "Exists", "Gt", "Lt"]))
    given = get(x, "values", [])
    is_listed = all_of(given.size() > 0, given.all(lambda v: is_in(v, list(values))))
    return all_of(x.key == key, x.operator == "In", is_listed)


def _is_open(key: str, values: Sequence[str]) -> Expression:
    """Return whether the pod may run on nodes with the label `key` and one of `values`."""
    terms = REQUIRED_TERMS
    is_open = any_of(terms.size() == 0, terms.exists(lambda t: _is_open_term(t, key, values)))
    return all_of(_is_selectable(key, values), is_open)


def _is_selectable(key: str, values: Sequence[str]) -> Expression:
    """Return whether the node selector allows nodes with the label."""
    return not_(all_of(is_in(key, _SELECTOR), not_(is_in(_SELECTOR[key], list(values)))))


def _is_open_term(t: Expression, key: str, values: Sequence[str]) -> Expression:
    """Return whether the term `t` allows nodes with the label."""

    def excludes(x: Expression) -> Expression:
        given, tests = get(x, "values", []), [x.operator == "DoesNotExist"]
        if values:
            listed = all_of(*(is_in(value, given) for value in values))
            others = given.all(lambda v: not_(is_in(v, list(values))))
            tests.append(all_of(x.operator == "NotIn", listed))
            tests.append(all_of(x.operator == "In", given.size() > 0, others))
        return all_of(x.key == key, any_of(*tests))

    is_filled = any_of(_expressions(t).size() > 0, get(t, "matchFields", []).size() > 0)
    return all_of(is_filled, not_(_expressions(t).exists(excludes)))


def exclusion_change(labels: NodeLabels) -> Expression:
    """`exclusion_edits` in CEL."""
    path = "/spec/affinity/nodeAffinity"
    required = f"{path}/{REQUIRED_AFFINITY}"

    def to_term(i: Expression, t: Expression) -> tuple[Expression, Expression]:
        at = f"{required}/nodeSelectorTerms/" + string(i) + "/matchExpressions"
        is_missing = {
            key: all_of(_is_selectable(key, values), _is_open_term(t, key, values))
            for key, values in labels.items()
        }
        new = choose((has(t, "matchExpressions"), []), otherwise=[add(at, [])])
        added = [
            choose((is_missing[k], [add(at + "/-", dynamic(exclusion(k, v)))]), otherwise=[])
            for k, v in labels.items()
        ]
        return any_of(*is_missing.values()), concat([new, *added])

    wanted = [
        choose((_is_selectable(k, v), [dynamic(exclusion(k, v))]), otherwise=[])
        for k, v in labels.items()
    ]
    whole = add(required, {"nodeSelectorTerms": [{"matchExpressions": concat(wanted)}]})
    has_terms = has(OBJECT.spec, f"affinity.nodeAffinity.{REQUIRED_AFFINITY}")
    return concat(
        [
            created(optional(OBJECT.spec, "affinity"), "/spec/affinity", {}),
            created(optional(OBJECT.spec, "affinity.nodeAffinity"), path, {}),
            choose((has_terms, REQUIRED_TERMS.transformList(to_term).flatten()), otherwise=[whole]),
        ]
    )


def narrowing_change(profile: Profile) -> Expression:
    """`narrowing_edits` in CEL."""
    path, given = "/spec/tolerations", _TOLERATIONS
    effects = sorted({*EFFECTS_OF_WILDCARDS, *(taint.effect for taint in profile.taints)})

    def is_wide_wildcard(t: Expression) -> Expression:
        return all_of(_is_wide(t, profile), _is_wildcard(t))

    def is_first(i: Expression, t: Expression) -> Expression:
        """Return whether it is the first of every taint with its effect."""
        effect = get(t, "effect", "")
        before = given.slice(0, i).exists(
            lambda other: all_of(is_wide_wildcard(other), get(other, "effect", "") == effect)
        )
        return all_of(is_wide_wildcard(t), not_(before))

    def replaced(i: Expression, t: Expression) -> tuple[Expression, Expression]:
        *others, last = (_narrow(t, KUBERNETES_TAINTS[0], effect) for effect in effects)
        choices = [
            (get(t, "effect", "") == effect, value)
            for effect, value in zip(effects, others, strict=False)
        ]
        at = f"{path}/" + string(i)
        value = choose(*choices, otherwise=last)
        return is_first(i, t), construct("JSONPatch", op="replace", path=at, value=value)

    def added(effect: str) -> Expression:
        """Return the other tolerations in place of every taint with `effect`."""
        first = given.filter(lambda t: all_of(is_wide_wildcard(t), get(t, "effect", "") == effect))
        rest = [add(f"{path}/-", _narrow(first[0], key, effect)) for key in KUBERNETES_TAINTS[1:]]
        return choose((first.size() > 0, rest), otherwise=[])

    # From the last to the first, as each removal moves those behind it.
    removed = (
        given.transformList(lambda i, t: (all_of(_is_wide(t, profile), not_(is_first(i, t))), i))
        .reverse()
        .map(lambda i: construct("JSONPatch", op="remove", path=f"{path}/" + string(i)))
    )
    return concat([given.transformList(replaced), *map(added, effects), removed])


def _narrow(t: Expression, key: str, effect: str) -> Value:
    """Return the toleration of the taints `key` in place of `t`, which has `effect`."""
    made = {name: dyn(value) for name, value in toleration_of(key, effect).items()}
    if effect != "NoExecute":  # only with this effect a toleration may end
        return made
    seconds = {**made, "tolerationSeconds": dyn(t.tolerationSeconds)}
    return choose((has(t, "tolerationSeconds"), seconds), otherwise=made)
