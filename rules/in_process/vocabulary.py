"""The words of statements: what rules know about a pod, computed by variables of a policy in CEL.

Each word is the twin of a function of Python, which its comment names. The profile is in them as
literals. `$name` in a text is the variable `name` about the object, or about the object as it was
before an update.

What is costly to read is bounded by `MAX_COUNTS` and `MAX_CHARACTERS`: an API server stops an
expression that takes more than 1,000,000 units of cost.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rules.base.traits import DEVICE_LIST_FOLDER
from rules.gpu.components import DAEMON_SET_CONTROLLERS, REPLICA_SET_CONTROLLER
from rules.gpu.devices import DEVICE_CLASS_PREFIX, NO_GPU, RDMA_PATTERN
from rules.gpu.images import (
    AGENTS,
    CUDA_TAG_WORDS_BY_IMAGE,
    FOLDERS_WITHOUT_GPUS,
    IMAGES_FOR_ANY_MAKER,
    MAX_REFERENCE,
    NVIDIA_REGISTRIES,
    OTHER_VENDORS_TAGS,
    WITHOUT_GPUS,
)
from rules.gpu.visibility import (
    ALTERNATIVE_VARIABLE,
    CUDA_VERSION,
    DEBUGGER_LABEL,
    IN_EXEC,
    NVIDIA_VISIBLE_DEVICES,
)
from rules.gpu.volumes import (
    DEVICE_LIST_PATH,
    DRIVER_ROOTS,
    GPU_FILE,
    MAX_PATH_CHARACTERS,
    NVIDIA_FILE,
)
from rules.in_process.statement import Statement, any_of, cel, concat, shown
from rules.objects.pod import DEFAULT_SCHEDULER, MIRROR_ANNOTATION
from rules.placement.gpu_nodes import (
    AT_MOST_ONE,
    LABELS_OF_EVERY_NODE,
    OTHER_ACCELERATORS,
    SCHEDULE_ANYWAY,
)
from rules.profile.profile import (
    Component,
    Fraction,
    Profile,
    Resource,
    Scheduler,
    Taint,
    VisibleDevices,
)

MAX_COUNTS = {
    "containers": 250,
    "variables": 1_500,
    "GPU variables": 100,
    "entries of envFrom": 300,
    "characters in values of GPU variables": 20_000,
    "volumes": 200,
    "mounts": 300,
    "resources": 500,
    "annotations": 300,
    "mounts at paths of lists of devices": 20,
    "characters in paths of such mounts": 4_000,
    "mounts of paths of the node": 50,
    "characters in these paths": 50_000,
    "node labels": 100,
    "terms of node affinity": 50,
    "expressions of them": 200,
    "tolerations": 200,
}
MAX_CHARACTERS = {"name of a variable": 256, "prefix": 256, "value of a GPU variable": 4096}
_INDICES = list(range(MAX_COUNTS["GPU variables"]))
_READABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_REFERENCES = ("configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef")


REQUIRED_TERMS = (
    "$spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution"
    ".?nodeSelectorTerms.orValue([])"
)
PREFERRED_TERMS = (
    "$spec.?affinity.?nodeAffinity.?preferredDuringSchedulingIgnoredDuringExecution.orValue([])"
)


_USER = "request.userInfo.username"


class Variable(NamedTuple):
    """A variable of a policy."""

    name: str
    expression: str


def facts(profile: Profile) -> Iterator[Variable]:
    """The variables that hold what the profile says, which do not depend on the object."""
    resources = dict(_resource_facts(profile))
    variables = {n: _variable_facts(v, profile) for n, v in profile.visible_devices.items()}
    yield Variable("resources", cel({n: f for n, f in resources.items() if "*" not in n}))
    yield Variable("resourcePatterns", cel([f for n, f in resources.items() if "*" in n]))
    yield Variable("visible", cel({n: f for n, f in variables.items() if "*" not in n}))
    yield Variable("visiblePatterns", cel([f for n, f in variables.items() if "*" in n]))
    alternatives = profile.alternative_variables
    yield Variable("runtimeClasses", cel(profile.runtime_classes or ("",)))
    yield Variable("alternatives", cel([n for n in alternatives if "*" not in n]))
    yield Variable("alternativePatterns", cel([regex_of(n) for n in alternatives if "*" in n]))
    chosen = sorted(profile.chosen_alternatives)
    yield Variable("chosenPatterns", cel([regex_of(n) for n in chosen if "*" in n]))
    yield Variable("completed", cel(list(_completed(profile))))
    labels = {n: _label_facts(n, values) for n, values in profile.node_labels.items()}
    yield Variable("labels", cel({n: f for n, f in labels.items() if "*" not in n}))
    yield Variable("labelPatterns", cel([f for n, f in labels.items() if "*" in n]))
    yield Variable(
        "companions", cel({n: _companions(r, profile) for n, r in profile.resources.items()})
    )
    yield Variable("maxima", cel({n: r.maximum for n, r in profile.resources.items()}))
    schedulers = [_scheduler_facts(scheduler) for scheduler in profile.schedulers]
    yield Variable("schedulers", cel(schedulers or [dict.fromkeys(_SCHEDULER, _NOTHING)]))
    fractions = [_fraction_facts(fraction, profile) for fraction in profile.fractions]
    yield Variable("fractions", cel(fractions or [dict.fromkeys(_FRACTION, _NOTHING)]))
    references = [
        {"variable": r.variable, "key": r.key, "annotation": r.annotation}
        for r in profile.injected_references
    ]
    yield Variable("references", cel(references or [{"variable": "", "key": "", "annotation": ""}]))
    yield Variable("alternative", cel(_variable_facts(ALTERNATIVE_VARIABLE, profile)))


def vocabulary(
    profile: Profile, *, old: bool = False, variables: Collection[str] = ()
) -> Iterator[Variable]:
    """The variables that all statements use, each after those that it uses.

    With `old` they are about the object before an update, and their names begin with `old`. The
    object is a pod, or a workload with the template of one. `variables` are patterns of variables
    of containers that statements read beside those about GPUs.
    """
    root = "oldObject" if old else "object"
    texts = {
        "pod": _pod(f"dyn({root})"),
        "objectMetadata": f"{root}.metadata",
        "metadata": "$pod.metadata",
        "spec": "$pod.spec",
        "annotations": "$metadata.?annotations.orValue({})",
        "base": _base(),
        "hostPaths": (
            '$spec.?volumes.orValue([]).filter(w, w.?hostPath.?path.orValue("") != "")'
            '.map(w, {"name": string(w.name), "path": string(w.hostPath.path)})'
        ),
        "tooLarge": _too_large(profile, variables),
        "hostVolumes": _host_volumes(),
        "nodeLabel": _node_label(),
        "fractionTarget": _fraction_target(profile),
        "requesting": _requesting(),
        "excludesNvidia": _excludes_nvidia(),
        "described": _described(),
        "withVariables": _with_variables(profile, variables),
        "containers": _containers(),
        "requestsGpu": "$containers.exists(c, c.requestsGpu)",
        "amounts": _amounts(),
        "isNew": "false" if old else "true",
        "isForGpus": '$requestsGpu || $nodeLabel != ""',
        "isDaemon": _is_daemon(),
        "usesGpuRuntime": '$spec.?runtimeClassName.orValue("") in variables.runtimeClasses',
    }
    for name, text in texts.items():
        yield Variable(variable_name(name, old=old), resolve(text, old=old))


IS_POD = '(request.kind.kind == "Pod")'
"""Whether the object is a pod; else it is a built-in workload."""


def _pod(given: str) -> str:
    """The pod, or the template of the pods of a built-in workload."""
    return (
        f'{IS_POD} ? {given} : request.kind.kind == "CronJob"'
        f" ? {given}.spec.jobTemplate.spec.template"
        f' : request.kind.kind == "PodTemplate" ? {given}.template : {given}.spec.template'
    )


def variable_name(name: str, *, old: bool) -> str:
    """The name of the variable `name`, or of its twin about the object before an update."""
    return f"old{name[0].upper()}{name[1:]}" if old else name


def resolve(text: str, *, old: bool) -> str:
    """`text` with the variables that it names."""
    return re.sub(r"\$(\w+)", lambda m: f"variables.{variable_name(m[1], old=old)}", text)


def matches_any(text: str, patterns: Iterable[str]) -> str:
    """`rules.base.text_matching.matches_any`: whether the CEL `text` matches one of `patterns`."""
    patterns = tuple(patterns)
    names = [p for p in patterns if "*" not in p]
    tests = [f"{text} in {cel(names)}"] if names else []
    return any_of((*tests, *(_matches(text, p) for p in patterns if "*" in p)))


def _matches(text: str, pattern: str) -> str:
    if pattern == "*":
        return "true"
    first, *middle, last = pattern.split("*")
    if middle:
        return f"{text}.matches({cel(regex_of(pattern))})"
    tests = [f"{text}.startsWith({cel(first)})"] if first else []
    tests += [f"{text}.endsWith({cel(last)})"] if last else []
    if first and last:
        tests.append(f"{text}.size() >= {len(first) + len(last)}")
    return " && ".join(tests)


def _stem(pattern: str) -> str:
    return pattern.partition("*")[0]


def regex_of(pattern: str) -> str:
    """A regular expression that fits what `pattern` fits."""
    return f"(?s)^{'.*'.join(map(re.escape, pattern.split('*')))}$"


# Containers, and whether there is more of anything than is read.


def _base() -> str:
    lists = (
        ("init", "$spec.?initContainers.orValue([])"),
        ("app", "$spec.?containers.orValue([])"),
        ("ephemeral", "$spec.?ephemeralContainers.orValue([])"),
    )
    return " + ".join(
        f'{field}.map(raw, {{"role": dyn("{role}"), "raw": dyn(raw)}})' for role, field in lists
    )


def _too_large(profile: Profile, variables: Collection[str]) -> str:
    is_read = _is_gpu_variable(profile, variables)
    counts = {
        "variables": "b.raw.?env.orValue([]).size()",
        "GPU variables": f"b.raw.?env.orValue([]).filter(e, {is_read}).size()",
        "entries of envFrom": "b.raw.?envFrom.orValue([]).size()",
        "characters in values of GPU variables": (
            f"b.raw.?env.orValue([]).filter(e, {is_read})"
            '.map(e, [e.?value.orValue("").size()].map(n, n > 4096 ? 0 : n)[0]).sum()'
        ),
        "mounts": "b.raw.?volumeMounts.orValue([]).size()",
        "resources": "b.raw.?resources.?limits.orValue({}).size()",
    }
    tests = [
        f"$base.size() > {MAX_COUNTS['containers']}",
        *(f"$base.map(b, {count}).sum() > {MAX_COUNTS[name]}" for name, count in counts.items()),
        f"$spec.?volumes.orValue([]).size() > {MAX_COUNTS['volumes']}",
        *_too_many_paths(),
        (
            "$base.exists(b, b.raw.?envFrom.orValue([]).exists(s,"
            f" s.?prefix.orValue('').size() > {MAX_CHARACTERS['prefix']}))"
        ),
        f"$spec.?nodeSelector.orValue({{}}).size() > {MAX_COUNTS['node labels']}",
        f"{REQUIRED_TERMS}.size() > {MAX_COUNTS['terms of node affinity']}",
        f"{PREFERRED_TERMS}.size() > {MAX_COUNTS['terms of node affinity']}",
        *(
            f"{terms}.map(t, {expressions}.orValue([])"
            ".map(x, x.?values.orValue([]).size() + 1).sum()).sum()"
            f" > {MAX_COUNTS['expressions of them']}"
            for terms, expressions in (
                (REQUIRED_TERMS, "t.?matchExpressions"),
                (PREFERRED_TERMS, "t.?preference.?matchExpressions"),
            )
        ),
        f"$spec.?tolerations.orValue([]).size() > {MAX_COUNTS['tolerations']}",
        f"$annotations.size() > {MAX_COUNTS['annotations']}",
        (
            "$base.exists(b, b.raw.?env.orValue([]).exists(e, "
            f"e.name.size() > {MAX_CHARACTERS['name of a variable']}))"
        ),
    ]
    return any_of(tests)


def _too_many_paths() -> Iterator[str]:
    mounted = "b.raw.?volumeMounts.orValue([]).filter(m, $hostPaths.exists(h, h.name == m.name))"
    length = (
        'm.?subPath.orValue("").size() + m.?subPathExpr.orValue("").size()'
        " + $hostPaths.filter(h, h.name == m.name)[0].path.size()"
    )
    lists = (
        "b.raw.?volumeMounts.orValue([])"
        f".filter(m, m.mountPath.contains({cel(DEVICE_LIST_FOLDER)}))"
    )
    most = MAX_COUNTS["mounts at paths of lists of devices"]
    yield f"$base.map(b, {lists}.size()).sum() > {most}"
    characters = f"$base.map(b, {lists}.map(m, m.mountPath.size()).sum()).sum()"
    yield f"{characters} > {MAX_COUNTS['characters in paths of such mounts']}"
    most = MAX_COUNTS["characters in these paths"]
    yield f"$hostPaths.map(h, h.path.size()).sum() > {most}"
    yield f"$base.map(b, {mounted}.size()).sum() > {MAX_COUNTS['mounts of paths of the node']}"
    yield f"$base.map(b, {mounted}.map(m, {length}).sum()).sum() > {most}"


# What containers request: `rules.gpu.devices`.


def _resource_facts(profile: Profile) -> Iterator[tuple[str, Mapping[str, str]]]:
    for name, resource in profile.resources.items():
        yield (
            name,
            {
                "name": name,
                "vendor": resource.vendor,
                "sharing": resource.sharing,
                "part": "" if resource.unit == "device" else "part",
                "exclusive": "exclusive" if resource.exclusive else "",
                **({"pattern": regex_of(name), "prefix": _stem(name)} if "*" in name else {}),
            },
        )


def _companions(resource: Resource, profile: Profile) -> Mapping[str, Sequence[str]]:
    """Of the companions of `resource` the names and patterns; the first, and what it counts."""
    names = [name for name in resource.companions if "*" not in name]
    patterns = [regex_of(name) for name in resource.companions if "*" in name]
    first = resource.companions[0] if resource.companions else ""
    known = profile.resource(first)
    counted = ": 1" if known is None or known.unit == "device" else ""
    return {"names": names, "patterns": patterns, "first": [first], "counted": [counted]}


# Of a list without an element an API server does not know the type, and this fits nothing.
_NOTHING = ("^$",)
_FRACTION = ("annotations", "portion", "memory", "cards", "excludes", "givers")


def _fraction_facts(fraction: Fraction, profile: Profile) -> Mapping[str, Sequence[str]]:
    """What is known of annotations for a part of a card; `givers` are the schedulers that obey."""
    return {
        "annotations": fraction.annotations,
        "portion": [fraction.portion],
        "memory": [fraction.memory],
        "cards": [fraction.cards],
        "excludes": fraction.excludes,
        "givers": _givers(fraction, profile),
    }


_SCHEDULER = ("scheduler", "required", "names", "patterns", "annotations")


def _scheduler_facts(scheduler: Scheduler) -> Mapping[str, Sequence[str]]:
    """The names of a scheduler, and the names and patterns of what it places, and its annotations.

    `required` has one of these, if pods need this scheduler for them.
    """
    placed = scheduler.resources or scheduler.annotations
    return {
        "scheduler": [scheduler.name, *scheduler.alternatives],
        "required": placed[:1] if scheduler.required else (),
        "names": [name for name in scheduler.resources if "*" not in name],
        "patterns": [regex_of(name) for name in scheduler.resources if "*" in name],
        "annotations": scheduler.annotations,
    }


def _givers(fraction: Fraction, profile: Profile) -> list[str]:
    """The schedulers that give a fraction; empty if any does."""
    givers = [
        s for s in profile.schedulers if not set(s.annotations).isdisjoint(fraction.annotations)
    ]
    return sorted({name for s in givers for name in (s.name, *s.alternatives)})


def _fraction_target(profile: Profile) -> str:
    """`Pod._fraction_target`: the name of the container that annotations ask for; else empty."""
    text = '""'
    for fraction in reversed(profile.fractions):
        asks = any_of(f"{cel(key)} in $annotations" for key in fraction.annotations)
        names = _givers(fraction, profile)
        scheduler = f"$spec.?schedulerName.orValue({cel(DEFAULT_SCHEDULER)})"
        given = f" && {scheduler} in {cel(names)}" if names else ""
        first = '$base.filter(b, b.role == "app")[0].raw.name'
        target = first
        if fraction.target:
            name = f'$annotations[?{cel(fraction.target)}].orValue("")'
            named = f'$base.exists(b, b.role != "ephemeral" && b.raw.name == {name})'
            target = f"({named} ? {name} : {first})"
        text = f"({asks}){given} ? {target} : ({text})"
    return text


def _requesting() -> str:
    """For each container the GPU resources that it requests, each with its facts."""
    limits = "b.raw.?resources.?limits.orValue({})"
    requests = "b.raw.?resources.?requests.orValue({})"
    names = (
        f'{limits}.filter(n, n.contains("/") && {limits}[n] != "0")'
        f' + {requests}.filter(n, n.contains("/") && {requests}[n] != "0"'
        f' && {limits}[?n].orValue("0") == "0")'
    )
    return (
        '$tooLarge ? [] : $base.map(b, {"b": dyn(b), "devices": dyn('
        f"[{names}].map(names, names.map(n, {{"
        f'"name": dyn(n), "facts": dyn({facts_of("n")})}}))[0].filter(d, d.facts.size() > 0)'
        ")})"
    )


def _amounts() -> str:
    """For each container the GPU resources in its limits, each with its amount and its facts.

    Zeros are among them. API servers demand a limit for each request, and that both are equal.
    """
    limits = "c.raw.?resources.?limits.orValue({})"
    return (
        f'$containers.map(c, {{"c": dyn(c), "devices": dyn({limits}.filter(n, n.contains("/"))'
        f'.map(n, {{"name": dyn(string(n)), "text": dyn(string({limits}[n])),'
        f' "facts": dyn({facts_of("n")})}}).filter(d, d.facts.size() > 0))}})'
    )


def facts_of(name: str) -> str:
    """A list with the facts about the resource with the CEL `name`; empty if none is known."""
    return (
        f"({name} in variables.resources ? [variables.resources[{name}]]"
        " : variables.resourcePatterns"
        f".filter(p, {name}.startsWith(p.prefix) && {name}.matches(p.pattern)))"
    )


def _described() -> str:
    """What the views of containers know, without their variables."""
    cards = 'k.devices.filter(d, d.facts[0].part == "").map(d, string(d.name))'
    parts = "k.devices.map(d, string(d.name))"
    first = f'(k.devices.size() == 0 ? "" : {cards}.size() > 0 ? {cards}.min() : {parts}.min())'
    fields = {
        "text": '(k.b.role == "app" ? "" : string(k.b.role) + " ") + "container \\""'
        ' + string(k.b.raw.name) + "\\""',
        "name": "k.b.raw.name",
        "role": "k.b.role",
        "raw": "k.b.raw",
        "image": 'k.b.raw.?image.orValue("")',
        "devices": "k.devices",
        "first": first,
        "vendors": "k.devices.map(d, d.facts[0].vendor)",
        "hasClaims": "k.b.raw.?resources.?claims.orValue([]).size() > 0",
        "isTarget": '$fractionTarget != "" && k.b.role != "ephemeral"'
        " && k.b.raw.name == $fractionTarget",
        "fromPlugin": '($fractionTarget != "" && k.b.role != "ephemeral"'
        f" && k.b.raw.name == $fractionTarget)"
        f" || k.devices.exists(d, !({is_class('d.name')}))",
        "hasCudaImage": is_cuda_image('k.b.raw.?image.orValue("")'),
        "deviceLists": _device_lists(),
        "prefixes": 'k.b.raw.?envFrom.orValue([]).filter(s, s.?prefix.orValue("") != "")',
        "mounts": _host_mounts(),
        "sysAdmin": "k.b.raw.?securityContext.?privileged.orValue(false)"
        " || k.b.raw.?securityContext.?capabilities.?add.orValue([]).exists(x,"
        ' x.upperAscii() in ["SYS_ADMIN", "CAP_SYS_ADMIN", "ALL", "CAP_ALL"])',
    }
    members = ", ".join(f'"{name}": dyn({text})' for name, text in fields.items())
    return f"$requesting.map(k, {{{members}}})"


def _completed(profile: Profile) -> Iterator[Mapping[str, str]]:
    """The variables that a prefix and a key may form, as `visible-devices-envfrom` has them."""
    alternatives = sorted(profile.alternative_variables, key=lambda name: "*" in name)
    for name in dict.fromkeys((*profile.visible_devices, *alternatives)):
        is_alternative = name not in profile.visible_devices
        is_known = not is_alternative or name in profile.chosen_alternatives
        yield {
            "name": name,
            "stem": name.partition("*")[0],
            "star": "*" if "*" in name else "",
            "alternative": "alternative" if is_alternative else "",
            "unknown": "unknown" if "*" in name and not is_known else "",
        }


def _label_facts(name: str, values: Sequence[str]) -> Mapping[str, Sequence[str]]:
    pattern = {"pattern": [regex_of(name)], "prefix": [_stem(name)]} if "*" in name else {}
    return {**pattern, "values": list(map(regex_of, values))}


def is_class(name: str) -> str:
    """Whether the CEL `name` is that of a device class as a resource."""
    return f"{name}.startsWith({cel(DEVICE_CLASS_PREFIX)})"


# Variables: `rules.gpu.visibility`.


def _variable_facts(known: VisibleDevices, profile: Profile) -> Mapping[str, Sequence[str]]:
    return {
        "name": [known.name],
        "prefix": [_stem(known.name)],
        "pattern": [regex_of(known.name)],
        "maker": [known.maker],
        "vendors": known.vendors,
        "hides": known.hides,
        "overrides": known.overrides,
        "driverOnly": [known.driver_only] if known.driver_only else [],
        "hidden": [known.hiding_value] if known.hiding_value is not None else [],
        "exclusive": ["exclusive"] if profile.is_exclusive(known.vendors) else [],
        "fromAnnotation": ["yes"] if known.from_annotation else [],
        "emptyGrants": ["yes"] if known.empty_grants else [],
    }


def _is_gpu_variable(profile: Profile, variables: Collection[str]) -> str:
    """Whether some rule reads the variable `e` of `env`, or it fits one of `variables`."""
    names = sorted(n for n in profile.visible_devices if "*" not in n)
    stems = {n.partition("*")[0] for n in profile.visible_devices if "*" in n}
    stems |= {n.partition("*")[0] for n in profile.alternative_variables if "*" in n}
    alternatives = [n for n in profile.alternative_variables if "*" not in n]
    exact = dict.fromkeys((*names, *alternatives, CUDA_VERSION), True)
    return any_of(
        (
            f"e.name in {cel(exact)}",
            'e.name.startsWith("NVIDIA_")',
            *(f"e.name.startsWith({cel(stem)})" for stem in sorted(stems)),
            *([matches_any("e.name", variables)] if variables else []),
        )
    )


def _with_variables(profile: Profile, variables: Collection[str]) -> str:
    """The containers with their variables that have to do with GPUs, each once: the last entry."""
    fields = {name: f"c.{name}" for name in _DESCRIBED}
    fields |= {
        "requestsGpu": 'c.first != "" || c.hasClaims || c.isTarget',
        "request": 'c.hasClaims && c.first == "" ? "uses a resource claim"'
        ' : c.fromPlugin ? "asks for a GPU" : "asks for a device class"',
        "variables": _variables(),
    }
    members = ", ".join(f'"{name}": dyn({text})' for name, text in fields.items())
    return (
        "$described.map(c, [c.raw.?env.orValue([])"
        f".filter(e, {_is_gpu_variable(profile, variables)})].map(env, {{{members}}})[0])"
    )


def _containers() -> str:
    """The containers with what follows from their variables."""
    fields = {name: f"c.{name}" for name in (*_DESCRIBED, *_WITH_VARIABLES)}
    variable = NVIDIA_VISIBLE_DEVICES
    fields |= {
        "hasNoDevice": _has_no_device(),
        "isUnset": f"!{has_variable(variable)} && !({has_prefix(variable)})",
        "looksLegacy": _looks_legacy(),
    }
    members = ", ".join(f'"{name}": dyn({text})' for name, text in fields.items())
    return f"$withVariables.map(c, {{{members}}})"


_DESCRIBED = (
    *("text", "name", "role", "raw", "image", "devices", "first", "vendors", "hasClaims"),
    *("isTarget", "fromPlugin", "prefixes", "sysAdmin", "mounts", "deviceLists", "hasCudaImage"),
)
_WITH_VARIABLES = ("requestsGpu", "request", "variables")


def _variables() -> str:
    found = (
        "n in variables.visible ? [variables.visible[n]]"
        " : variables.visiblePatterns.filter(p, n.startsWith(p.prefix[0])"
        " && n.matches(p.pattern[0]))"
    )
    # The last entry of a name decides, so a name counts where it stands last.
    last = (
        "env.size() == 0 ? []"
        " : [env.map(e, string(e.name))].map(names, "
        f"{cel(_INDICES)}.filter(i, i < names.size() && names.lastIndexOf(names[i]) == i))[0]"
    )
    raw = (
        f'{{"name": dyn(n), "entry": dyn(env[i]), "known": dyn({found}),'
        ' "count": dyn(env.filter(e, e.name == n).size())}'
    )
    value = '(v.entry.?valueFrom.hasValue() ? "" : v.entry.?value.orValue(""))'
    known = "(v.known.size() > 0 ? v.known[0] : variables.alternative)"
    first_kind = " : ".join(
        f'v.entry.?valueFrom.?{kind}.hasValue() ? "{kind}"' for kind in _REFERENCES
    )
    first_stage = {
        "name": "v.name",
        "entry": "v.entry",
        "count": "v.count",
        "isVisible": "v.known.size() > 0",
        "facts": known,
        "isReference": "v.entry.?valueFrom.hasValue()",
        "value": value,
        "shown": shown_variable("v.name"),
        "shownValue": shown(value),
        "kind": f'({first_kind} : "reference")',
    }
    own_request = (
        f"c.devices.size() == 0 ? (v.facts.name[0] == {cel(NVIDIA_VISIBLE_DEVICES)}"
        ' && (c.first != "" || c.hasClaims || c.isTarget))'
        " : c.vendors.exists(x, x in v.facts.vendors)"
    )
    second_stage = {name: f"v.{name}" for name in first_stage} | {
        "state": _state(),
        "isForRequest": f"({own_request})",
        "foreign": f'(c.hasClaims || ({own_request}) ? "" : c.first)',
        "setting": concat(
            '(v.isReference ? "takes " + string(v.shown) + " from a " + string(v.kind)',
            '"" : "sets " + string(v.shown) + "=" + string(v.shownValue))',
        ),
    }
    stages = [
        ", ".join(f'"{name}": dyn({text})' for name, text in stage.items())
        for stage in (first_stage, second_stage)
    ]
    return (
        f"({last}).map(i, [env[i].name].map(n, {raw})[0])"
        f".map(v, {{{stages[0]}}}).map(v, {{{stages[1]}}})"
    )


def shown_variable(name: str) -> str:
    """`display_variable` of the CEL `name`."""
    return f"({name}.size() <= 60 && {name}.matches({cel(_READABLE)}) ? {name} : {shown(name)})"


def _state() -> str:
    """`parse_visibility`, and that of a reference."""
    longest = MAX_CHARACTERS["value of a GPU variable"]
    # What stands outside of `$(…)`: behind the last `)` everything, and before it what follows the
    # first `)` of each piece between two `$(`.
    outside = (
        '[string(v.value)].map(t, t.contains("$(") ? [t.lastIndexOf(")") + 1].map(end, '
        '(")" + t.substring(0, end)).split("$(").map(s, '
        's.contains(")") ? s.substring(s.indexOf(")") + 1) : "").join("$(") + t.substring(end))[0]'
        " : t)[0]"
    )
    tokens = f'({outside}).split(",").map(s, s.trim()).filter(s, s != "")'
    decides = '[tokens.filter(s, s == "all" || s in v.facts.driverOnly)]'
    driver_only = f"{decides}.exists(d, d.size() > 0 && d[0] in v.facts.driverOnly)"
    return (
        '(v.isReference ? "reference"'
        f' : v.value.size() > {longest} ? "granted"'
        ' : v.value == "" && v.facts.emptyGrants.size() > 0 ? "granted"'
        f" : [{tokens}].map(tokens,"
        ' tokens.exists(s, s in v.facts.overrides) ? "hidden"'
        ' : v.value.contains("$(") ? "granted"'
        ' : tokens.all(s, s in v.facts.hides) ? "hidden"'
        f' : {driver_only} ? "driver only" : "granted")[0])'
    )


# Pods for which rules are not run: `rules.gpu.components`.


def is_mirror() -> str:
    """Whether the pod is the mirror of a static pod, made by its kubelet."""
    return f'{cel(MIRROR_ANNOTATION)} in $annotations && {_USER}.startsWith("system:node:")'


def is_made_by_controller() -> str:
    """Whether a controller makes the workload from another one, which was evaluated itself."""
    return "$objectMetadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))"


def components(profile: Profile) -> Iterator[tuple[tuple[str, ...], str]]:
    """The rules that are not run for a component, none for all, and whether the pod is one.

    The first that holds decides: the components with the fewest rules come first.
    """
    for component in sorted(profile.components, key=lambda component: len(component.rules)):
        yield component.rules, _is_component(component)


def _is_component(component: Component) -> str:
    account = (
        '[$spec.?serviceAccountName.orValue("")].map(t, t != "" ? t : "default")'
        f".exists(t, {matches_any('t', component.service_accounts)})"
    )
    creators = component.creators or DAEMON_SET_CONTROLLERS
    tests = [
        f"{IS_POD} ? {_USER} in {cel(creators)} : ({_may_be_created(component)})",
        matches_any("request.namespace", component.namespaces),
        account,
    ]
    if component.images:
        image = matches_any('b.raw.?image.orValue("")', component.images)
        tests.append(f"$base.all(b, {image})")
    return " && ".join(f"({test})" for test in tests)


def _may_be_created(component: Component) -> str:
    """`_may_create`, where the user is not known: whether those who may make such pods."""
    creators = component.creators or DAEMON_SET_CONTROLLERS
    of_deployments = cel(REPLICA_SET_CONTROLLER in creators)
    of_daemon_sets = cel(not {*DAEMON_SET_CONTROLLERS}.isdisjoint(creators))
    known = {*DAEMON_SET_CONTROLLERS, REPLICA_SET_CONTROLLER}
    of_others = cel(bool(component.creators) and any(c not in known for c in creators))
    return (
        f'request.kind.kind in ["Deployment", "ReplicaSet"] ? {of_deployments}'
        ' : request.kind.kind == "DaemonSet" || ($isDaemon && request.operation == "UPDATE")'
        f" ? {of_daemon_sets} : {of_others}"
    )


def _is_daemon() -> str:
    """`is_made_by_daemon_set`. Who will create the pods of a workload is not known."""
    owner = 'o.kind == "DaemonSet" && o.?controller.orValue(false)'
    is_owned = f"$metadata.?ownerReferences.orValue([]).exists(o, {owner})"
    of_pod = f"{is_owned} && {_USER} in {cel(DAEMON_SET_CONTROLLERS)}"
    return f'{IS_POD} ? {of_pod} : request.kind.kind == "DaemonSet" || {is_owned}'


# Nodes: `rules.placement.gpu_nodes`.


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


def _node_label() -> str:
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


def _excludes_nvidia() -> str:
    words = cel(sorted(OTHER_ACCELERATORS))
    return (
        '(request.operation != "CREATE" || $spec.?nodeName.orValue("") == "")'
        ' && ($requesting.exists(k, k.devices.exists(d, d.facts[0].exclusive != ""))'
        f' || $nodeLabel.lowerAscii().findAll("[a-z]+").exists(word, word in {words}))'
    )


# Images: `rules.gpu.images`.


def is_cuda_image(image: str, *, with_agents: bool = True) -> str:
    """`is_cuda_image` of the CEL `image`; without NVIDIA's agents, if that is wanted."""
    in_registry = any_of(f"t[0].contains({cel(r)})" for r in NVIDIA_REGISTRIES)
    without = any_of(f"t[0].contains({cel(folder)})" for folder in FOLDERS_WITHOUT_GPUS)
    lacks = (
        f"(t[1] in {cel(sorted(WITHOUT_GPUS))}"
        f" || (!(t[1].contains('cuda') || t[2].contains('cuda')) && ({without})))"
    )
    tags = (
        "(t[3] != '' ? [t[2] == '' ? 'latest' : t[2], 'latest'] : [t[2] == '' ? 'latest' : t[2]])"
    )
    words = f"{cel(CUDA_TAG_WORDS_BY_IMAGE)}[o]"
    known = _is_image_of(
        CUDA_TAG_WORDS_BY_IMAGE,
        f"({words}.size() == 0 || {words}.exists(s, {tags}.exists(tag, tag.contains(s))))",
    )
    is_agent = f"t[1] in {cel(sorted(AGENTS))}"
    of_nvidia = f"{is_agent} || !{lacks}" if with_agents else f"!({is_agent}) && !{lacks}"
    return _is_image(image, f"({in_registry}) ? ({of_nvidia}) : {known}")


def sets_visible_devices(image: str) -> str:
    """`sets_visible_devices` of the CEL `image`."""
    return f"({is_cuda_image(image)} || {is_image_for_any_maker(image)})"


def is_image_for_any_maker(image: str) -> str:
    """Whether the CEL `image` is no CUDA image and sets the variable all the same."""
    return _is_image(image, _is_image_of(IMAGES_FOR_ANY_MAKER))


def _is_image(image: str, test: str) -> str:
    """Whether `test` holds for the parts `t` of the CEL `image`."""
    return f"({image}.size() <= {MAX_REFERENCE} && {_parts(image)}.exists(t, {test}))"


def _parts(image: str) -> str:
    """A list with the parts of the CEL `image`: path, name, tag, `pinned` or empty."""
    # `lastIndexOf` of an empty text is an error for API servers of Kubernetes 1.31.
    return (
        f"[string({image}).lowerAscii()].map(t, t == '' ? '-' : t)"
        ".map(t, t.substring(0, t.lastIndexOf('/') + 1).split('/')"
        ".map(s, s.matches(':[0-9]+$') ? s.substring(0, s.lastIndexOf(':')) : s).join('/')"
        " + t.substring(t.lastIndexOf('/') + 1))"
        ".map(t, [t.indexOf('@') > 0 ? t.substring(0, t.indexOf('@')) : t,"
        " t.contains('@') ? 'pinned' : ''])"
        ".map(t, [t[0].substring(0, t[0].lastIndexOf('/') + 1),"
        " t[0].substring(t[0].lastIndexOf('/') + 1), t[1]])"
        ".map(t, [t[0], t[1].contains(':') ? t[1].substring(0, t[1].indexOf(':')) : t[1],"
        " t[1].contains(':') ? t[1].substring(t[1].indexOf(':') + 1) : '', t[2]])"
    )


def _is_image_of(names: Collection[str], test: str = "true") -> str:
    """Whether the parts `t` name one of `names`, no other maker's build of it, and fit `test`."""
    owner = (
        "[t[0].substring(0, t[0].size() > 0 ? t[0].size() - 1 : 0)]"
        ".map(o, '/' + o).map(o, o.substring(o.lastIndexOf('/') + 1) + '/' + t[1])[0]"
    )
    return (
        f"[{owner}].exists(o, o in {cel(sorted(names))} && !(t[3] == ''"
        f" && {cel(OTHER_VENDORS_TAGS)}.exists(s, t[2].contains(s))) && {test})"
    )


# Paths of the node: `rules.gpu.volumes`.


def clean_path(path: str) -> str:
    """`clean_path` of the CEL `path`, in which the API server accepts no `..`."""
    process = r"^(?:proc/[^/]+/(?:task/[^/]+/)?(?:root|cwd)/)+"
    return (
        f"[{path}.split('/').filter(s, s != '' && s != '.').join('/')]"
        f".map(t, [(t + '/').find({cel(process)})].map(f, f == '' ? t"
        " : f.size() > t.size() ? '' : t.substring(f.size()))[0]).map(t, '/' + t)[0]"
    )


_ROUNDS = 8


def resolved_path(path: str, unresolved: str) -> str:
    """`clean_path` of the CEL `path`, which may have `..`; `unresolved` if it has too many."""
    removed = cel(r"/[^/]+/\.\./")
    one = (
        ".map(t, t.startsWith('/../') ? t.substring(3) : [t.find(" + removed + ")]"
        ".map(f, f == '' ? t : t.replace(f, '/', 1))[0])"
    )
    return (
        f"({path}.contains('..') ? [{clean_path(path)} + '/']{one * _ROUNDS}"
        f".map(t, t.contains('/../') ? {cel(unresolved)} : {clean_path('t')})[0]"
        f" : {clean_path(path)})"
    )


def _host_volumes() -> str:
    return (
        f'$tooLarge ? [] : $hostPaths.map(h, {{"name": h.name, "path": {clean_path("h.path")}}})'
        f".filter(h, h.path.size() <= {MAX_PATH_CHARACTERS})"
    )


def _is_gpu_file(path: str) -> str:
    """`is_gpu_file` of the CEL `path`. Of one that is longer than any known it reads a part."""
    begin = f"({path}.size() > 256 ? {path}.substring(0, 256) : {path})"
    # RE2 knows no verbose expressions.
    plain = re.sub(r"#.*|\s+", "", GPU_FILE.removeprefix("(?x)"))
    gpu_file = cel(f"^(?:{plain})$")
    tail = "t.substring(t.lastIndexOf('/dev/nvidia'))"
    return (
        f"({path} in {cel(sorted(DRIVER_ROOTS))}"
        f" || {path}.startsWith('/dev/') && {begin}.matches({gpu_file})"
        f" || [{begin}].exists(t, t.contains('/dev/nvidia')"
        f" && {tail}.matches({cel(f'^(?:{NVIDIA_FILE})$')})))"
    )


def _host_mounts() -> str:
    """`host_mounts` of a container; its paths are clean."""
    sub = (
        'm.?subPath.orValue("") != "" ? m.subPath : m.?subPathExpr.orValue("").contains("$") ? ""'
        ' : m.?subPathExpr.orValue("")'
    )
    below = clean_path("(h.path + '/' + sub)")
    joined = f"[{sub}].map(sub, sub == '' ? h.path : {below})[0]"
    return (
        "$hostVolumes.size() == 0 ? [] : k.b.raw.?volumeMounts.orValue([])"
        ".filter(m, $hostVolumes.exists(h, h.name == m.name))"
        ".map(m, $hostVolumes.filter(h, h.name == m.name)"
        f'.map(h, {{"volume": dyn(h.name), "path": dyn({joined}),'
        ' "readOnly": dyn(m.?readOnly.orValue(false))})[0])'
        f".filter(m, m.path.size() <= {MAX_PATH_CHARACTERS})"
        '.map(m, {"volume": dyn(m.volume), "path": dyn(m.path), "readOnly": dyn(m.readOnly),'
        f' "isGpuFile": dyn({_is_gpu_file("m.path")}), "shown": dyn({shown("m.path")}),'
        f' "shownVolume": dyn({shown("m.volume")})}})'
    )


def _device_lists() -> str:
    """The mounts at paths by which NVIDIA's toolkit reads a list of devices; not of an emptyDir.

    A path with more than eight `..` counts as one of them.
    """
    path = resolved_path("m.mountPath", unresolved=f"{DEVICE_LIST_PATH}/..")
    volume = "$spec.?volumes.orValue([]).filter(w, w.name == m.name)"
    is_null = '$hostVolumes.exists(h, h.name == m.name && h.path == "/dev/null")'
    folder = cel(DEVICE_LIST_PATH)
    return (
        "k.b.raw.?volumeMounts.orValue([])"
        f".filter(m, m.mountPath.contains({cel(DEVICE_LIST_FOLDER)})"
        f" && !{volume}.exists(w, w.?emptyDir.hasValue() && !w.?hostPath.hasValue()))"
        f'.map(m, {{"path": dyn({path}), "isNull": dyn({is_null}),'
        f' "shownVolume": dyn({shown("string(m.name)")})}})'
        f".filter(l, l.path != {folder} && l.path.startsWith({folder}))"
    )


# Words of several rules.


def has_prefix(variable: str, within: str = "") -> str:
    """`matching_prefixes`: whether a prefix of the container `c` and a key can form `variable`."""
    return f"{prefixes_of(variable, within)}.size() > 0"


def last_prefix(variable: str, within: str = "") -> str:
    """The last of these prefixes."""
    found = prefixes_of(variable, within)
    return f"[{found}].map(found, found[found.size() - 1].prefix)[0]"


def prefixes_of(variable: str, within: str = "") -> str:
    """The entries of `envFrom` whose prefix and some key can form `variable`."""
    begins = f" && s.prefix.startsWith({cel(within)})" if within else ""
    stem, star, _ = variable.partition("*")
    forms = [f"{cel(stem)}.startsWith(s.prefix)"]
    forms += [f"s.prefix.startsWith({cel(stem)})"] if star else []
    return f"c.prefixes.filter(s, s.prefix != {cel(variable)} && ({any_of(forms)}){begins})"


def has_variable(name: str) -> str:
    """Whether `env` of the container `c` sets the variable `name`."""
    return f"c.variables.exists(v, v.name == {cel(name)})"


def _has_no_device() -> str:
    """`has_no_device`."""
    hidden = (
        f'c.variables.exists(v, v.name == {cel(NVIDIA_VISIBLE_DEVICES)} && v.state == "hidden")'
    )
    return f"({hidden} && !c.requestsGpu)"


def _looks_legacy() -> str:
    """`looks_legacy`."""
    is_set = (
        f'c.variables.exists(v, v.name == {cel(CUDA_VERSION)} && (v.isReference || v.value != ""))'
    )
    prefixed = f"!{has_variable(CUDA_VERSION)} && {has_prefix(CUDA_VERSION)}"
    required = (
        'c.variables.exists(v, v.name == "NVIDIA_REQUIRE_CUDA" && !v.isReference'
        ' && v.value != "" && !v.value.contains("$("))'
    )
    return f"(({is_set} || ({prefixed})) && !{required})"


def is_beside_request() -> str:
    """`action_beside_request` of the variable `v`; `"deny"` if no foreign GPU is requested."""
    names_node = '($spec.?nodeName.orValue("") != "" && request.operation == "CREATE")'
    is_apart = (
        '(c.devices.exists(d, d.name == v.foreign && d.facts[0].exclusive != "")'
        " || v.facts.exclusive.size() > 0)"
    )
    return f'(v.foreign != "" && !{names_node} && {is_apart} ? "warn" : "deny")'


def foreign_message(setting: str) -> str:
    """`foreign_variable` of the variable `v`, with the CEL `setting`."""
    return concat(
        'c.text + " asks for "',
        shown("string(v.foreign)"),
        '" and "',
        setting,
        '", which only the container runtime for " + v.facts.maker[0]',
        cel(" cards reads: its image or its settings are for another maker's cards"),
    )


def advice_beside_request() -> str:
    """`advice_beside_request` of `visibility_edits` about the variable `v`."""
    end = ": the devices of a claim do not depend on it"
    return (
        f"(c.fromPlugin ? {cel('remove the variable: the device plugin sets it')}"
        f" : v.facts.hidden.size() == 0 ? {cel('remove the variable' + end)}"
        f' : "set the variable to " + v.facts.hidden[0] + {cel(end)})'
    )


def remove_and_request_advice(removal: str, request: str, otherwise: str = '""') -> str:
    """`remove_and_request` of the container `c`; all three are CEL."""
    return (
        f'(c.role == "ephemeral" ? {removal} + {otherwise} + {cel(": " + IN_EXEC)}'
        f' : {removal} + " and " + {request} + {otherwise})'
    )


def is_platform_reference() -> str:
    """`is_platform_reference` of the variable `v`; `$references` are the profile's."""
    field = 'v.entry.?valueFrom.?fieldRef.?fieldPath.orValue("")'
    annotation = f'c.devices.exists(d, {field} == "metadata.annotations[\'" + d.name + "\']")'
    reference = "v.entry.?valueFrom.?configMapKeyRef"
    name = f'{reference}.?name.orValue("")'
    written = (
        f'{name}.matches("-i?[0-9]+$") && variables.references.exists(r, r.variable == v.name'
        f' && {reference}.?key.orValue("") == r.key'
        ' && $annotations[?r.annotation].orValue("-") =='
        f' {name}.substring(0, {name}.lastIndexOf("-")))'
    )
    return f"(v.count == 1 && (v.facts.fromAnnotation.size() > 0 ? {annotation} : {written}))"


def prefix_statement(
    variable: str, effect: str, where: str, *, within: str = "", remedy: str = "", subject: str = ""
) -> Statement:
    """`prefix_findings` of the containers that `where` fits; `subject` follows their names."""
    name = variable.removesuffix("*")
    message = concat(
        "c.text",
        cel(f"{subject} takes variables with the prefix "),
        shown(f"string({last_prefix(variable, within)})"),
        cel(f", which a key can complete to {name}{effect}"),
    )
    test = f"{has_prefix(variable, within)} && {where}"
    advice = cel(f"choose a prefix that {name} does not begin with{remedy}")
    return Statement("container", test, message, advice)


def unknown_devices() -> str:
    """The names that `name_of_unknown_device` of the container `c` chooses from."""
    limits = "c.raw.?resources.?limits.orValue({})"
    requests = "c.raw.?resources.?requests.orValue({})"
    return (
        f'({limits}.filter(n, {limits}[n] != "0") + {requests}.filter(n, {requests}[n] != "0"))'
        '.filter(n, n.contains("/") && !(n in variables.resources)'
        " && !variables.resourcePatterns.exists(p, n.startsWith(p.prefix) && n.matches(p.pattern))"
        f" && !n.lowerAscii().matches({cel(RDMA_PATTERN.pattern)})"
        f" && !n.lowerAscii().matches({cel(NO_GPU.pattern)})).map(n, string(n))"
    )


def describe_request() -> str:
    """`describe_request` of the container `c`."""
    first = shown("names.min()")
    return (
        f"(c.requestsGpu ? string(c.request) : [{unknown_devices()}].map(names, names.size() == 0"
        f' ? "asks for no GPU" : "asks for " + {first} + " (perhaps a GPU)")[0])'
    )


def is_node_debugger() -> str:
    """`is_node_debugger`."""
    key, value = DEBUGGER_LABEL
    return f'$metadata.?labels[?{cel(key)}].orValue("") == {cel(value)}'
