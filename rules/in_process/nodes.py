"""Twins of `rules.placement.gpu_nodes`: whether a pod selects GPU nodes, in CEL."""

from collections.abc import Collection, Mapping, Sequence

from rules.gpu.claims import OTHER_VENDOR
from rules.gpu.visibility import NVIDIA_VISIBLE_DEVICES
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    REQUEST,
    Expression,
    all_of,
    any_of,
    choose,
    expression,
    get,
    is_in,
    let,
    not_,
    string,
)
from rules.in_process.patterns import regex_of, stem_of
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.placement.gpu_nodes import (
    AT_MOST_ONE,
    LABELS_OF_EVERY_NODE,
    OTHER_ACCELERATORS,
    OTHER_GPU_MAKERS,
    OTHER_MACHINE_PATTERN,
    SCHEDULE_ANYWAY,
)
from rules.profile.profile import Profile, Taint

_NODE_AFFINITY = "affinity.nodeAffinity"
REQUIRED_TERMS = get(
    OBJECT.spec,
    f"{_NODE_AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
    [],
)
PREFERRED_TERMS = get(
    OBJECT.spec, f"{_NODE_AFFINITY}.preferredDuringSchedulingIgnoredDuringExecution", []
)


def label_facts(name: str, values: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return the values of the label `name` that mean a GPU node, any if there are none."""
    pattern = {"pattern": [regex_of(name)], "prefix": [stem_of(name)]} if "*" in name else {}
    return {**pattern, "values": list(map(regex_of, values))}


def label_values(key: Expression) -> Expression:
    """Return the values of the label `key` that mean a GPU node, in a list; empty if it is none."""
    fitting = POLICY.labelPatterns.filter(
        lambda p: all_of(key.startsWith(p.prefix[0]), key.matches(p.pattern[0]))
    )
    return choose((is_in(key, POLICY.labels), [POLICY.labels[key]]), otherwise=fitting)


def _is_gpu_label(key: Expression, value: Expression) -> Expression:
    def has_value(f: Expression) -> Expression:
        values = f[0].values
        is_listed = values.exists(lambda r: value.matches(r))
        return all_of(f.size() > 0, any_of(values.size() == 0, is_listed))

    return expression([label_values(key)]).exists(has_value)


def has_only_gpu_nodes(key: Expression) -> Expression:
    """`_has_only_gpu_nodes` of `key`."""
    is_everywhere = is_in(key, sorted(LABELS_OF_EVERY_NODE))
    return all_of(not_(is_everywhere), label_values(key).size() > 0)


def selected_labels(expressions: Expression) -> Expression:
    """`selected_gpu_label` of the `expressions` of a term, as a list that may be empty."""

    def demands_gpu(x: Expression) -> Expression:
        few = all_of(x.operator == "Lt", x.values[0].matches(f"^(?:{AT_MOST_ONE})$"))
        gpu_value = get(x, "values", []).exists(lambda value: _is_gpu_label(x.key, value))
        only = all_of(is_in(x.operator, ["Exists", "Gt", "Lt"]), has_only_gpu_nodes(x.key))
        return choose((x.operator == "In", gpu_value), otherwise=all_of(not_(few), only))

    def label(x: Expression) -> Expression:
        has_one_value = all_of(x.operator == "In", x.values.size() == 1, x.values[0] != "")
        return choose((has_one_value, x.key + ": " + x.values[0]), otherwise=x.key)

    return expressions.filter(demands_gpu).map(label)


def scheduler() -> Expression:
    """`Pod.scheduler`."""
    return let(
        get(OBJECT.spec, "schedulerName", ""),
        lambda t: choose((t == "", DEFAULT_SCHEDULER), otherwise=t),
    )


def tolerates(toleration: Expression, taint: Taint) -> Expression:
    """`tolerates` of `toleration`."""
    key, effect, operator, value = (
        get(toleration, name, "") for name in ("key", "effect", "operator", "value")
    )
    tests = [operator == "Exists"]
    if taint.value is None:  # so it may be any
        is_number = value.matches("^[+-]?[0-9]{1,19}$")
        tests += [is_in(operator, ["", "Equal"]), all_of(is_in(operator, ["Lt", "Gt"]), is_number)]
    else:  # no taint of a profile has a number, with which Lt and Gt compare
        tests.append(all_of(is_in(operator, ["", "Equal"]), value == taint.value))
    every = all_of(key == "", operator == "Exists")
    return all_of(
        is_in(effect, ["", taint.effect]),
        choose((key == taint.key, any_of(*tests)), otherwise=every),
    )


def node_label() -> Expression:
    """`gpu_node_label`: the label by which the pod selects GPU nodes; empty if it does not."""
    selector = get(OBJECT.spec, "nodeSelector", {})
    chosen = selector.filter(lambda key: _is_gpu_label(key, selector[key]))
    selected = (
        expression([chosen.map(lambda key: string(key))])
        .filter(lambda keys: keys.size() > 0)
        .map(lambda keys: keys.min())
        .map(lambda key: choose((selector[key] == "", key), otherwise=key + ": " + selector[key]))
    )
    terms = (
        REQUIRED_TERMS.map(lambda t: selected_labels(get(t, "matchExpressions", [])))
        .filter(lambda found: found.size() > 0)
        .map(lambda found: found[0])
    )
    label = let(
        selected + terms + _topology_keys().filter(lambda key: has_only_gpu_nodes(key)),
        lambda found: choose((found.size() > 0, string(found[0])), otherwise=""),
    )
    return choose((OBJECT.tooLarge, ""), otherwise=label)


def _is_scheduled() -> Expression:
    return any_of(REQUEST.operation != "CREATE", get(OBJECT.spec, "nodeName", "") == "")


def excludes_nvidia() -> Expression:
    """`excludes_nvidia`."""
    requests_exclusive = OBJECT.requesting.exists(
        lambda k: k.devices.exists(lambda d: d.facts[0].exclusive != "")
    )
    return all_of(_is_scheduled(), any_of(requests_exclusive, _selects_only(OTHER_ACCELERATORS)))


def _selects_only(words: Collection[str]) -> Expression:
    """`_selects_only`."""
    selector = get(OBJECT.spec, "nodeSelector", {})

    def is_chosen(key: Expression) -> Expression:
        text = choose((selector[key] == "", key), otherwise=key + ": " + selector[key])
        return all_of(_is_gpu_label(key, selector[key]), names_other_accelerator(text, words))

    def is_of_term(term: Expression) -> Expression:
        return let(
            selected_labels(get(term, "matchExpressions", [])),
            lambda found: all_of(
                found.size() > 0, names_other_accelerator(string(found[0]), words)
            ),
        )

    by_topology = _topology_keys().exists(
        lambda key: all_of(has_only_gpu_nodes(key), names_other_accelerator(key, words))
    )
    by_terms = all_of(REQUIRED_TERMS.size() > 0, REQUIRED_TERMS.all(is_of_term))
    chosen = selector.exists(is_chosen)
    return all_of(OBJECT.nodeLabel != "", any_of(chosen, by_topology, by_terms))


def _topology_keys() -> Expression:
    spread = get(OBJECT.spec, "topologySpreadConstraints", []).filter(
        lambda s: s.whenUnsatisfiable != SCHEDULE_ANYWAY
    )
    beside = get(
        OBJECT.spec, "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution", []
    )
    return spread.map(lambda s: s.topologyKey) + beside.map(lambda s: s.topologyKey)


def names_other_accelerator(
    name: Expression, words: Collection[str] = OTHER_ACCELERATORS
) -> Expression:
    """`names_other_accelerator` of `name`."""
    lower = name.lowerAscii()
    return any_of(
        lower.findAll("[a-z]+").exists(lambda word: is_in(word, sorted(words))),
        lower.matches(OTHER_MACHINE_PATTERN),
    )


def is_for_other_makers(profile: Profile) -> Expression:
    """`is_for_other_makers`, for which no claim's device classes are known."""
    nvidia = profile.visible_variable(NVIDIA_VISIBLE_DEVICES)
    of_nvidia = nvidia.vendors if nvidia else [""]
    others = OTHER_ACCELERATORS | OTHER_GPU_MAKERS

    def of_known_vendors(k: Expression) -> Expression:
        return k.devices.filter(lambda d: d.facts[0].vendor != OTHER_VENDOR)

    requesting = OBJECT.requesting.filter(lambda k: of_known_vendors(k).size() > 0)
    is_foreign = OBJECT.requesting.all(
        lambda k: of_known_vendors(k).all(lambda d: not_(is_in(d.facts[0].vendor, of_nvidia)))
    )
    runtime = choose((OBJECT.usesGpuRuntime, OBJECT.spec.runtimeClassName), otherwise="")
    is_named = any_of(_selects_only(others), names_other_accelerator(runtime, others))
    return all_of(
        _is_scheduled(),
        OBJECT.fractionTarget == "",
        choose((requesting.size() > 0, is_foreign), otherwise=is_named),
    )
