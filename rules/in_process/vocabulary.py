"""The variables of a policy: what rules know about a pod, in CEL.

The texts come from the modules beside this one; each is the twin of a function of Python, which its
docstring names. The profile is in them as literals. `$name` in a text is the variable `name` about
the object, or about the object as it was before an update.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from rules.gpu.visibility import ALTERNATIVE_VARIABLE, NVIDIA_VISIBLE_DEVICES
from rules.in_process.bounds import too_large
from rules.in_process.capabilities import added_capabilities
from rules.in_process.components import IS_POD, is_daemon
from rules.in_process.images import (
    is_cuda_image,
    is_image_of_maker,
    maker_facts,
    maker_of_image,
)
from rules.in_process.nodes import (
    excludes_nvidia,
    label_facts,
    node_label,
)
from rules.in_process.patterns import NOTHING, regex_of
from rules.in_process.requests import (
    fraction_target,
    is_class,
    requesting,
    resource_facts,
)
from rules.in_process.statement import cel
from rules.in_process.variables import (
    completed,
    gpu_variables,
    has_no_device,
    has_prefix,
    has_variable,
    is_gpu_variable,
    looks_legacy,
    variable_facts,
)
from rules.in_process.volumes import device_lists, host_mounts, host_volumes
from rules.profile.profile import Profile


class Variable(NamedTuple):
    """A variable of a policy."""

    name: str
    expression: str


def facts(profile: Profile) -> Iterator[Variable]:
    """The variables that hold what the profile says, which do not depend on the object."""
    resources = dict(resource_facts(profile))
    variables = {n: variable_facts(v, profile) for n, v in profile.visible_devices.items()}
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
    yield Variable("completed", cel(list(completed(profile))))
    labels = {n: label_facts(n, values) for n, values in profile.node_labels.items()}
    yield Variable("labels", cel({n: f for n, f in labels.items() if "*" not in n}))
    yield Variable("labelPatterns", cel([f for n, f in labels.items() if "*" in n]))
    yield Variable("makers", cel(maker_facts()))
    references = [
        {"variable": r.variable, "key": r.key, "annotation": r.annotation}
        for r in profile.injected_references
    ]
    yield Variable("references", cel(references or [{"variable": "", "key": "", "annotation": ""}]))
    namespaces = sorted({name for c in profile.components for name in c.namespaces})
    yield Variable("componentNamespaces", cel([regex_of(n) for n in namespaces] or NOTHING))
    yield Variable("alternative", cel(variable_facts(ALTERNATIVE_VARIABLE, profile)))


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
        "tooLarge": too_large(is_gpu_variable(profile, variables)),
        "hostVolumes": host_volumes(),
        "nodeLabel": node_label(),
        "fractionTarget": fraction_target(profile),
        "requesting": requesting(),
        "excludesNvidia": excludes_nvidia(),
        "described": _described(),
        "withVariables": _with_variables(profile, variables),
        "containers": _containers(),
        "withMaker": f"$containers.filter(c, {is_image_of_maker()})",
        "makerOfImages": (
            f"$withMaker.size() == 0 ? [] : [$withMaker[0]].map(c, {maker_of_image()})"
        ),
        "requestsGpu": (
            "$spec.?resourceClaims.orValue([]).size() > 0 || $containers.exists(c, c.requestsGpu)"
        ),
        "isForGpus": '$requestsGpu || $nodeLabel != ""',
        "isDaemon": is_daemon(),
        "usesGpuRuntime": '$spec.?runtimeClassName.orValue("") in variables.runtimeClasses',
    }
    for name, text in texts.items():
        yield Variable(variable_name(name, old=old), resolve(text, old=old))


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


def _base() -> str:
    """The containers of all lists, each with its role."""
    lists = (
        ("init", "$spec.?initContainers.orValue([])"),
        ("app", "$spec.?containers.orValue([])"),
        ("ephemeral", "$spec.?ephemeralContainers.orValue([])"),
    )
    return " + ".join(
        f'{field}.map(raw, {{"role": dyn("{role}"), "raw": dyn(raw)}})' for role, field in lists
    )


def _described() -> str:
    """Return the views of containers, without their variables."""
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
        "deviceLists": device_lists(),
        "prefixes": 'k.b.raw.?envFrom.orValue([]).filter(s, s.?prefix.orValue("") != "")',
        "mounts": host_mounts(),
        "sysAdmin": "k.b.raw.?securityContext.?privileged.orValue(false)"
        f" || {added_capabilities('k.b.raw')}"
        '.exists(x, x in ["SYS_ADMIN", "ALL"])',
    }
    members = ", ".join(f'"{name}": dyn({text})' for name, text in fields.items())
    return f"$requesting.map(k, {{{members}}})"


def _with_variables(profile: Profile, variables: Collection[str]) -> str:
    """The containers with their variables that have to do with GPUs, each once: the last entry."""
    fields = {name: f"c.{name}" for name in _DESCRIBED}
    fields |= {
        "requestsGpu": 'c.first != "" || c.hasClaims || c.isTarget',
        "request": 'c.hasClaims && c.first == "" ? "uses a resource claim"'
        ' : c.fromPlugin ? "asks for a GPU" : "asks for a device class"',
        "variables": gpu_variables(),
    }
    members = ", ".join(f'"{name}": dyn({text})' for name, text in fields.items())
    return (
        "$described.map(c, [c.raw.?env.orValue([])"
        f".filter(e, {is_gpu_variable(profile, variables)})].map(env, {{{members}}})[0])"
    )


def _containers() -> str:
    """The containers with what follows from their variables."""
    fields = {name: f"c.{name}" for name in (*_DESCRIBED, *_WITH_VARIABLES)}
    variable = NVIDIA_VISIBLE_DEVICES
    fields |= {
        "hasNoDevice": has_no_device(),
        "isUnset": f"!{has_variable(variable)} && !({has_prefix(variable)})",
        "looksLegacy": looks_legacy(),
    }
    members = ", ".join(f'"{name}": dyn({text})' for name, text in fields.items())
    return f"$withVariables.map(c, {{{members}}})"


_DESCRIBED = (
    *("text", "name", "role", "raw", "image", "devices", "first", "vendors", "hasClaims"),
    *("isTarget", "fromPlugin", "prefixes", "sysAdmin", "mounts", "deviceLists", "hasCudaImage"),
)
_WITH_VARIABLES = ("requestsGpu", "request", "variables")
