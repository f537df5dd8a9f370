"""Twins of `rules.placement.gpu_nodes`: whether a pod selects GPU nodes, in CEL."""

from collections.abc import Collection, Mapping, Sequence

from rules.gpu.claims import OTHER_VENDOR
from rules.gpu.visibility import NVIDIA_VISIBLE_DEVICES
from rules.in_process.patterns import regex_of, stem_of
from rules.in_process.statement import any_of, cel
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.placement.gpu_nodes import (
    AT_MOST_ONE,
    LABELS_OF_EVERY_NODE,
    OTHER_ACCELERATORS,
    OTHER_GPU_MAKERS,
    SCHEDULE_ANYWAY,
)
from rules.profile.profile import Profile, Taint

REQUIRED_TERMS = (
    "$spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution"
    ".?nodeSelectorTerms.orValue([])"
)
PREFERRED_TERMS = (
    "$spec.?affinity.?nodeAffinity.?preferredDuringSchedulingIgnoredDuringExecution.orValue([])"
)


def label_facts(name: str, values: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """The values of the label `name` that mean a GPU node, any if there are none."""
    pattern = {"pattern": [regex_of(name)], "prefix": [stem_of(name)]} if "*" in name else {}
    return {**pattern, "values": list(map(regex_of, values))}


def label_values(key: str) -> str:
    """The values of the label `key` that mean a GPU node, in a list; empty if it is none."""
    return (
        f"({key} in variables.labels ? [variables.labels[{key}]]"
        f" : variables.labelPatterns.filter(p, {key}.startsWith(p.prefix[0])"
        f" && {key}.matches(p.pattern[0])))"
    )


def _is_gpu_label(key: str, value: str) -> str:
    return (
        f"[{label_values(key)}].exists(f, f.size() > 0 && (f[0].values.size() == 0"
        f" || f[0].values.exists(r, {value}.matches(r))))"
    )


def has_only_gpu_nodes(key: str) -> str:
    """`_has_only_gpu_nodes` of the CEL `key`."""
    return f"!({key} in {cel(sorted(LABELS_OF_EVERY_NODE))}) && {label_values(key)}.size() > 0"


def selected_labels(expressions: str) -> str:
    """`selected_gpu_label` of the CEL `expressions` of a term, as a list that may be empty."""
    few = f'x.operator == "Lt" && x.values[0].matches({cel(f"^(?:{AT_MOST_ONE})$")})'
    gpu_value = f"x.?values.orValue([]).exists(value, {_is_gpu_label('x.key', 'value')})"
    only = f'x.operator in ["Exists", "Gt", "Lt"] && {has_only_gpu_nodes("x.key")}'
    demand = f'(x.operator == "In" ? {gpu_value} : !({few}) && {only})'
    text = (
        '(x.operator == "In" && x.values.size() == 1 && x.values[0] != ""'
        ' ? x.key + ": " + x.values[0] : x.key)'
    )
    return f"{expressions}.orValue([]).filter(x, {demand}).map(x, {text})"


def scheduler() -> str:
    """`Pod.scheduler`."""
    default = cel(DEFAULT_SCHEDULER)
    return f'[$spec.?schedulerName.orValue("")].map(t, t == "" ? {default} : t)[0]'


def tolerates(taint: Taint) -> str:
    """`tolerates` of the toleration `t`."""
    key, effect = 't.?key.orValue("")', 't.?effect.orValue("")'
    operator, value = 't.?operator.orValue("")', 't.?value.orValue("")'
    tests = [f'{operator} == "Exists"']
    if taint.value is None:  # so it may be any
        number = f'{value}.matches("^[+-]?[0-9]{{1,19}}$")'
        tests += [f'{operator} in ["", "Equal"]', f'{operator} in ["Lt", "Gt"] && {number}']
    else:  # no taint of a profile has a number, with which Lt and Gt compare
        tests.append(f'{operator} in ["", "Equal"] && {value} == {cel(taint.value)}')
    return (
        f'{effect} in ["", {cel(taint.effect)}] && ({key} == {cel(taint.key)}'
        f' ? ({any_of(tests)}) : {key} == "" && {operator} == "Exists")'
    )


def node_label() -> str:
    """`gpu_node_label`: the label by which the pod selects GPU nodes; empty if it does not."""
    selector = "$spec.?nodeSelector.orValue({})"
    chosen = f"{selector}.filter(key, {_is_gpu_label('key', f'{selector}[key]')})"
    selected = (
        f"[{chosen}.map(key, string(key))].filter(keys, keys.size() > 0).map(keys, keys.min())"
        f'.map(key, {selector}[key] == "" ? key : key + ": " + {selector}[key])'
    )
    terms = (
        f"{REQUIRED_TERMS}.map(t, {selected_labels('t.?matchExpressions')})"
        ".filter(found, found.size() > 0).map(found, found[0])"
    )
    spread = f"s.whenUnsatisfiable != {cel(SCHEDULE_ANYWAY)}"
    topology = (
        f"($spec.?topologySpreadConstraints.orValue([]).filter(s, {spread})"
        ".map(s, s.topologyKey) + $spec.?affinity.?podAffinity"
        ".?requiredDuringSchedulingIgnoredDuringExecution.orValue([]).map(s, s.topologyKey))"
        f".filter(key, {has_only_gpu_nodes('key')})"
    )
    return (
        f'$tooLarge ? "" : [{selected} + {terms} + {topology}]'
        '.map(found, found.size() > 0 ? string(found[0]) : "")[0]'
    )


_IS_SCHEDULED = '(request.operation != "CREATE" || $spec.?nodeName.orValue("") == "")'


def excludes_nvidia() -> str:
    """`excludes_nvidia`."""
    return (
        f"{_IS_SCHEDULED}"
        ' && ($requesting.exists(k, k.devices.exists(d, d.facts[0].exclusive != ""))'
        f" || {names_other_accelerator('$nodeLabel')})"
    )


def names_other_accelerator(name: str, words: Collection[str] = OTHER_ACCELERATORS) -> str:
    """`names_other_accelerator` of the CEL `name`."""
    found = f'{name}.lowerAscii().findAll("[a-z]+")'
    return f"{found}.exists(word, word in {cel(sorted(words))})"


def is_for_other_makers(profile: Profile) -> str:
    """`is_for_other_makers`, for which no claim's device classes are known."""
    nvidia = profile.visible_variable(NVIDIA_VISIBLE_DEVICES)
    others = OTHER_ACCELERATORS | OTHER_GPU_MAKERS
    vendors = f"k.devices.filter(d, d.facts[0].vendor != {cel(OTHER_VENDOR)})"
    requested = f"$requesting.filter(k, {vendors}.size() > 0)"
    foreign = f"{vendors}.all(d, !(d.facts[0].vendor in {cel(nvidia.vendors if nvidia else [''])}))"
    runtime = '($usesGpuRuntime ? $spec.runtimeClassName : "")'
    return (
        f'{_IS_SCHEDULED} && $fractionTarget == ""'
        f" && ({requested}.size() > 0 ? $requesting.all(k, {foreign})"
        f" : ({names_other_accelerator('$nodeLabel', others)}"
        f" || {names_other_accelerator(runtime, others)}))"
    )
