"""A prefix in envFrom lets a ConfigMap or Secret form a visible-devices variable.

What it does
------------
Finds entries of `envFrom` whose `prefix` is the beginning of `NVIDIA_VISIBLE_DEVICES`, of the
corresponding variable of another maker, or of a variable that the profile lists as an
alternative: a key such as `DEVICES` after the prefix `NVIDIA_VISIBLE_` completes the name. An
entry without a prefix is not found: it may contain the whole name or anything else, and neither
the ConfigMap nor the Secret is part of the pod. `voidEveryContainer: true` closes that gap.

For an alternative without `*`, such as `DOCKER_RESOURCE_GPU`, the rule only warns: few nodes obey
one, and many builds use the prefix `DOCKER_` for their credentials. For an alternative with `*`, it
only warns about a prefix that ends before the `*`, or if no chosen profile lists the pattern.

Why it matters
--------------
The variable makes the container runtime inject GPUs that the scheduler has not counted. No search
for the variable's name finds a name that is split into a prefix and a key. In a container that
requests a GPU, the variable replaces the device plugin's choice.

Fix safety
----------
In a container without a GPU, or with only resource claims, the fix adds an explicit value to `env`,
which wins over `envFrom`. For an alternative it does so by default in pods that are created exactly
as written: the container loses only a GPU that the scheduler has not counted. For any other
variable, and in a custom resource or a PodTemplate, whose users may add the GPU, it needs
`fix: true` in the policy. There is no fix for a pattern with `*`, nor in a container to which a
device plugin gives a GPU: there only another prefix helps.

References
----------
- https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#environment-variables
- NVIDIA container toolkit, `internal/config/image/cuda_image.go`
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_object, as_text, display
from rules.base.traits import GPU_VARIABLE, OTHER_GPU_VARIABLE
from rules.gpu.devices import (
    describe_request,
    name_of_unknown_device,
    requests_gpu,
    uses_device_plugin,
)
from rules.gpu.visibility import hide_edits, hide_fix, matching_prefixes
from rules.in_process.statement import Statement, shown
from rules.profile.profile import Profile
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable that a key behind a prefix can set and that `env` does not override."""
    variables = _visible_variables(pod.profile)
    for container in pod.containers:
        if not container.raw.get("envFrom"):
            continue
        for variable in variables:
            sources = matching_prefixes(container, variable)
            if _is_unknown_pattern(variable, pod.profile):
                stem = variable.partition("*")[0]
                sources = [entry for entry in sources if entry[1]["prefix"].startswith(stem)]
            # Where a device plugin sets the variable, an entry in `env` is no remedy: it would hide
            # the GPU.
            if sources and (variable not in container.env or uses_device_plugin(container)):
                yield _finding(pod, container, variable, *sources[-1])


def _visible_variables(profile: Profile) -> list[str]:
    """The variables of all makers, then the alternatives, those without `*` first."""
    alternatives = sorted(profile.alternative_variables, key=lambda name: "*" in name)
    return list(dict.fromkeys((*profile.visible_devices, *alternatives)))


def _is_unknown_pattern(variable: str, profile: Profile) -> bool:
    """Return whether `variable` is a pattern for alternatives that no chosen profile lists."""
    is_listed = variable in profile.visible_devices or variable in profile.chosen_alternatives
    return "*" in variable and not is_listed


def _finding(
    pod: Pod, container: Container, variable: str, index: int, source: Mapping[str, Any]
) -> Finding:
    subject = (
        f"{container} {describe_request(container)} and"
        if requests_gpu(container)
        else str(container)
    )
    is_alternative = variable not in pod.profile.visible_devices
    stem, star, _ = variable.partition("*")
    only_warn = is_alternative and (
        not star
        or _is_unknown_pattern(variable, pod.profile)
        or not source["prefix"].startswith(stem)
    )
    fix: Fix | None = None
    if (
        not uses_device_plugin(container)
        and "*" not in variable
        and hide_edits(container, variable)
    ):
        fix = hide_fix(
            container,
            variable,
            safe=is_alternative and pod.is_final and not name_of_unknown_device(container),
        )
    return Finding(
        path=(*container.path, "envFrom", index, "prefix"),
        key=f"envFrom.{variable}",
        message=(
            f"{subject} takes variables from {_source_name(source)} with the prefix "
            f"{display(source['prefix'])}, which a key can complete to {variable}"
        ),
        container=container,
        help=f"choose a prefix that {variable} does not begin with",
        fix=fix,
        action=Action.WARN if only_warn else Action.DENY,
    )


def _source_name(source: Mapping[str, Any]) -> str:
    for kind in ("configMapRef", "secretRef"):
        if kind in source:
            what = "ConfigMap" if kind == "configMapRef" else "Secret"
            return f"the {what} {display(as_text(as_object(source[kind]).get('name')))}"
    return "an unnamed source"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    found = (
        "c.prefixes.filter(s, s.prefix != x.name && (x.stem.startsWith(s.prefix)"
        ' || (x.star != "" && s.prefix.startsWith(x.stem)))'
        ' && (x.unknown == "" || s.prefix.startsWith(x.stem)))'
    )
    where = f"{found}.size() > 0 && (!c.variables.exists(v, v.name == x.name) || c.fromPlugin)"
    source = f"[{found}].map(found, found[found.size() - 1])"
    only_warn = (
        'x.alternative != "" && (x.star == "" || x.unknown != ""'
        f" || !{source}.exists(s, s.prefix.startsWith(x.stem)))"
    )
    name = (
        's.?configMapRef.hasValue() ? "the ConfigMap " + '
        + shown('string(s.configMapRef.?name.orValue(""))')
        + ' : s.?secretRef.hasValue() ? "the Secret " + '
        + shown('string(s.secretRef.?name.orValue(""))')
        + ' : "an unnamed source"'
    )
    message = (
        '(c.requestsGpu ? c.text + " " + c.request + " and" : c.text) + " takes variables from "'
        f' + {source}.map(s, ({name}) + " with the prefix " + {shown("string(s.prefix)")})[0]'
        ' + ", which a key can complete to " + x.name'
    )
    advice = '"choose a prefix that " + x.name + " does not begin with"'
    action = f'({only_warn} ? "warn" : "deny")'
    return (Statement("completed", where, message, advice, action),)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE, OTHER_GPU_VARIABLE))
