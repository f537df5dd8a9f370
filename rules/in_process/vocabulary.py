"""The variables of a policy: what rules know about a pod, in CEL.

The expressions come from the modules beside this one; each is the twin of a function of Python,
which its docstring names. The profile is in them as literals. `OBJECT.name` in an expression,
`$name` in its text, is the variable `name` about the object, or about the object as it was before
an update.
"""

import re
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from rules.gpu.components import FOR_AGENTS
from rules.gpu.visibility import ALTERNATIVE_VARIABLE, NVIDIA_VISIBLE_DEVICES
from rules.in_process.bounds import too_large
from rules.in_process.components import IS_POD, KIND, account_of_pod, is_daemon, is_of_daemon_set
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    Expression,
    Value,
    all_of,
    any_of,
    choose,
    concat,
    dyn,
    expression,
    get,
    is_in,
    let,
    name,
    not_,
    record,
    string,
    text,
)
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
    added_capabilities,
    fraction_target,
    is_class,
    requesting,
    resource_facts,
)
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


@lru_cache(maxsize=2)  # all policies of an export have the same
def facts(profile: Profile) -> tuple[Variable, ...]:
    """Return the variables that hold what the profile says, which do not depend on the object."""
    return tuple(Variable(word, str(expression(of))) for word, of in _facts(profile).items())


def _facts(profile: Profile) -> dict[str, Any]:
    resources = dict(resource_facts(profile))
    variables = {n: variable_facts(v, profile) for n, v in profile.visible_devices.items()}
    alternatives = profile.alternative_variables
    chosen = sorted(profile.chosen_alternatives)
    labels = {n: label_facts(n, values) for n, values in profile.node_labels.items()}
    references = [
        {"variable": r.variable, "key": r.key, "annotation": r.annotation}
        for r in profile.injected_references
    ]
    namespaces = sorted({n for c in profile.components for n in c.namespaces})
    return {
        "resources": {n: f for n, f in resources.items() if "*" not in n},
        "resourcePatterns": [f for n, f in resources.items() if "*" in n],
        "visible": {n: f for n, f in variables.items() if "*" not in n},
        "visiblePatterns": [f for n, f in variables.items() if "*" in n],
        "runtimeClasses": profile.runtime_classes or ("",),
        "alternatives": [n for n in alternatives if "*" not in n],
        "alternativePatterns": [regex_of(n) for n in alternatives if "*" in n],
        "chosenPatterns": [regex_of(n) for n in chosen if "*" in n],
        "completed": list(completed(profile)),
        "labels": {n: f for n, f in labels.items() if "*" not in n},
        "labelPatterns": [f for n, f in labels.items() if "*" in n],
        "makers": maker_facts(),
        "references": references or [{"variable": "", "key": "", "annotation": ""}],
        "componentNamespaces": [regex_of(n) for n in namespaces] or NOTHING,
        "alternative": variable_facts(ALTERNATIVE_VARIABLE, profile),
    }


def vocabulary(
    profile: Profile, *, old: bool = False, variables: Collection[str] = ()
) -> Iterator[Variable]:
    """Yield the variables that all statements use, each after those that it uses.

    With `old` they are about the object before an update, and their names begin with `old`. The
    object is a pod, or a workload with the template of one. `variables` are patterns of variables
    of containers that statements read beside those about GPUs.
    """
    root = name("oldObject" if old else "object")
    spec, pod = OBJECT.spec, OBJECT.pod

    def is_read(e: Expression) -> Expression:
        return is_gpu_variable(e, profile, variables)

    values: dict[str, Value] = {
        "pod": _pod(dyn(root)),
        "objectMetadata": root.metadata,
        # Of a CronJob, the metadata of its Jobs.
        "makerMetadata": choose(
            (KIND == "CronJob", get(dyn(root), "spec.jobTemplate.metadata", {})),
            otherwise=dyn(root.metadata),
        ),
        "metadata": pod.metadata,
        "spec": pod.spec,
        "annotations": get(OBJECT.metadata, "annotations", {}),
        "account": account_of_pod(),
        "base": _base(),
        "hostPaths": (
            get(spec, "volumes", [])
            .filter(lambda w: get(w, "hostPath.path", "") != "")
            .map(lambda w: {"name": string(w.name), "path": string(w.hostPath.path)})
        ),
        "tooLarge": too_large(is_read),
        "hostVolumes": host_volumes(),
        "nodeLabel": node_label(),
        "fractionTarget": fraction_target(profile),
        "requesting": requesting(),
        "excludesNvidia": excludes_nvidia(),
        "mounting": OBJECT.requesting.map(_with_mounts),
        "described": OBJECT.mounting.map(_described),
        "withVariables": OBJECT.described.map(
            lambda c: let(
                get(c.raw, "env", []).filter(is_read), lambda env: _with_variables(c, env)
            )
        ),
        "containers": OBJECT.withVariables.map(_with_consequences),
        "withMaker": OBJECT.containers.filter(is_image_of_maker),
        "makerOfImages": choose(
            (OBJECT.withMaker.size() == 0, []),
            otherwise=expression([OBJECT.withMaker[0]]).map(maker_of_image),
        ),
        "requestsGpu": any_of(
            get(spec, "resourceClaims", []).size() > 0,
            OBJECT.containers.exists(lambda c: c.requestsGpu),
        ),
        "isForGpus": any_of(OBJECT.requestsGpu, OBJECT.nodeLabel != ""),
        "isDaemon": is_daemon(),
        "isOfDaemonSet": is_of_daemon_set(),
        "forAgents": choose((OBJECT.isDaemon, FOR_AGENTS), otherwise=""),
        "usesGpuRuntime": is_in(get(spec, "runtimeClassName", ""), POLICY.runtimeClasses),
    }
    for word, value in values.items():
        yield Variable(variable_name(word, old=old), resolve(value, old=old))


def _pod(given: Expression) -> Expression:
    """Return the pod, or the template of the pods of a built-in workload."""
    return choose(
        (IS_POD, given),
        (KIND == "CronJob", given.spec.jobTemplate.spec.template),
        (KIND == "PodTemplate", given.template),
        otherwise=given.spec.template,
    )


def variable_name(name: str, *, old: bool) -> str:
    """Return the name of the variable `name`, or of its twin about the object before an update."""
    return f"old{name[0].upper()}{name[1:]}" if old else name


def resolve(value: Value, *, old: bool) -> str:
    """Return the text of an expression with the names of the variables that it names."""
    return re.sub(
        r"\$(\w+)",
        lambda m: f"variables.{variable_name(m[1], old=old)}",
        str(expression(value)),
    )


def _base() -> Expression:
    """Return the containers of all lists, each with its role."""
    lists = {"init": "initContainers", "app": "containers", "ephemeral": "ephemeralContainers"}
    return concat(
        [get(OBJECT.spec, word, []).map(_with_role(role)) for role, word in lists.items()]
    )


def _with_role(role: str) -> Callable[[Expression], Expression]:
    return lambda raw: record(role=role, raw=raw)


def _with_mounts(k: Expression) -> Expression:
    """Return the container `k`, one of `requesting`, with its mounts."""
    return record(
        b=k.b,
        devices=k.devices,
        imageParts=k.imageParts,
        mounts=host_mounts(k.b.raw),
        deviceLists=device_lists(k.b.raw),
    )


def _described(k: Expression) -> Expression:
    """Return the view of a container `k`, one of `_with_mounts`, without its variables."""
    raw, devices = k.b.raw, k.devices
    cards = devices.filter(lambda d: d.facts[0].part == "").map(lambda d: string(d.name))
    parts = devices.map(lambda d: string(d.name))
    is_target = all_of(
        OBJECT.fractionTarget != "", k.b.role != "ephemeral", raw.name == OBJECT.fractionTarget
    )
    role = choose((k.b.role == "app", ""), otherwise=string(k.b.role) + " ")
    return record(
        text=text(f'{role}container "{string(raw.name)}"'),
        name=raw.name,
        role=k.b.role,
        raw=raw,
        image=get(raw, "image", ""),
        imageParts=k.imageParts,
        devices=devices,
        first=choose(
            (devices.size() == 0, ""), (cards.size() > 0, cards.min()), otherwise=parts.min()
        ),
        vendors=devices.map(lambda d: d.facts[0].vendor),
        hasClaims=get(raw, "resources.claims", []).size() > 0,
        isTarget=is_target,
        fromPlugin=any_of(is_target, devices.exists(lambda d: not_(is_class(d.name)))),
        hasCudaImage=is_cuda_image(k),
        deviceLists=k.deviceLists,
        prefixes=get(raw, "envFrom", []).filter(lambda s: get(s, "prefix", "") != ""),
        mounts=k.mounts,
        sysAdmin=any_of(
            get(raw, "securityContext.privileged", False),
            added_capabilities(raw).exists(lambda x: is_in(x, ["SYS_ADMIN", "ALL"])),
        ),
    )


def _with_variables(c: Expression, env: Expression) -> Expression:
    """Return the container `c` with its variables about GPUs in `env`, each once: the last."""
    return record(
        **{word: getattr(c, word) for word in _DESCRIBED},
        requestsGpu=any_of(c.first != "", c.hasClaims, c.isTarget),
        request=choose(
            (all_of(c.hasClaims, c.first == ""), "uses a resource claim"),
            (c.fromPlugin, "asks for a GPU"),
            otherwise="asks for a device class",
        ),
        variables=gpu_variables(c, env),
    )


def _with_consequences(c: Expression) -> Expression:
    """Return the container `c` with what follows from its variables."""
    variable = NVIDIA_VISIBLE_DEVICES
    return record(
        **{word: getattr(c, word) for word in (*_DESCRIBED, *_WITH_VARIABLES)},
        hasNoDevice=has_no_device(c),
        isUnset=all_of(not_(has_variable(variable, c)), not_(has_prefix(variable, c))),
        looksLegacy=looks_legacy(c),
    )


_DESCRIBED = (
    *("text", "name", "role", "raw", "image", "imageParts", "devices", "first", "vendors"),
    *("hasClaims", "isTarget", "fromPlugin", "prefixes", "sysAdmin", "mounts", "deviceLists"),
    "hasCudaImage",
)
_WITH_VARIABLES = ("requestsGpu", "request", "variables")
