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
from rules.in_process.expression import (
    Expression,
    all_of,
    any_of,
    choose,
    expression,
    get,
    has,
    not_,
    string,
    text,
)
from rules.in_process.statement import COMPLETED, CONTAINER, Statement, shown
from rules.profile.profile import Profile
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

# The fields of an entry of `envFrom` that name an object, and the kinds of the objects.
KIND_BY_FIELD = {"configMapRef": "ConfigMap", "secretRef": "Secret"}
UNNAMED_SOURCE = "an unnamed source"


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
    subject = str(container)
    if requests_gpu(container):
        subject = _requesting_subject(container, describe_request(container))
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
        message=_message(
            subject, _source(_source_name(source), display(source["prefix"])), variable
        ),
        container=container,
        help=_advice(variable),
        fix=fix,
        action=Action.WARN if only_warn else Action.DENY,
    )


def _requesting_subject(container: object, request: object) -> str:
    return f"{container} {request} and"


def _message(subject: object, source: object, variable: object) -> str:
    return f"{subject} takes variables from {source}, which a key can complete to {variable}"


def _source(name: object, prefix: object) -> str:
    return f"{name} with the prefix {prefix}"


def _advice(variable: object) -> str:
    return f"choose a prefix that {variable} does not begin with"


def _source_name(source: Mapping[str, Any]) -> str:
    for reference, kind in KIND_BY_FIELD.items():
        if reference in source:
            return _object(kind, display(as_text(as_object(source[reference]).get("name"))))
    return UNNAMED_SOURCE


def _object(kind: str, name: object) -> str:
    return f"the {kind} {name}"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, x = CONTAINER, COMPLETED
    sources = _sources_in_cel(c, x)
    last = expression([sources]).map(lambda found: found[found.size() - 1])
    begins_with_stem = last.exists(lambda s: s.prefix.startsWith(x.stem))
    only_warn = all_of(
        x.alternative != "", any_of(x.star == "", x.unknown != "", not_(begins_with_stem))
    )
    subject = choose(
        (c.requestsGpu, text(_requesting_subject(c.text, c.request))), otherwise=c.text
    )
    source = last.map(lambda s: text(_source(_source_name_in_cel(s), shown(string(s.prefix)))))[0]
    is_set = c.variables.exists(lambda v: v.name == x.name)
    statement = Statement(
        "completed",
        where=all_of(sources.size() > 0, any_of(not_(is_set), c.fromPlugin)),
        message=text(_message(subject, source, x.name)),
        help=text(_advice(x.name)),
        action=choose((only_warn, "warn"), otherwise="deny"),
    )
    return (statement,)


def _sources_in_cel(c: Expression, x: Expression) -> Expression:
    """Return the entries of `envFrom` by which a key can set the variable `x`."""

    def can_set(s: Expression) -> Expression:
        begins_with_stem = s.prefix.startsWith(x.stem)
        return all_of(
            s.prefix != x.name,
            any_of(x.stem.startsWith(s.prefix), all_of(x.star != "", begins_with_stem)),
            any_of(x.unknown == "", begins_with_stem),
        )

    return c.prefixes.filter(can_set)


def _source_name_in_cel(source: Expression) -> Expression:
    """`_source_name` of `source`."""

    def object_of(reference: str, kind: str) -> Expression:
        name = string(get(getattr(source, reference), "name", ""))
        return text(_object(kind, shown(name)))

    return choose(
        *((has(source, r), object_of(r, kind)) for r, kind in KIND_BY_FIELD.items()),
        otherwise=UNNAMED_SOURCE,
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE, OTHER_GPU_VARIABLE))
