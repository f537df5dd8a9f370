"""A container grants itself GPUs by an alternative to NVIDIA_VISIBLE_DEVICES.

What it does
------------
Finds the variables in a container's `env` that the profile lists as alternatives (such as
`DOCKER_RESOURCE_GPU`), if the value makes the container runtime inject devices, or is a
`valueFrom` reference, whose value the pod does not contain. For a name that fits only a pattern
which no chosen profile lists, such as `DOCKER_RESOURCE_*` without the profile `amd`, it only warns,
unless the value contains `all`.

Why it matters
--------------
Where NVIDIA's container toolkit is configured with a `swarm-resource`, the variables named there
take precedence over `NVIDIA_VISIBLE_DEVICES`, so even an explicit `void` does not help. The
container gets GPUs that the scheduler has not counted. AMD's runtime reads every variable that
begins with `DOCKER_RESOURCE_`, and so does Hygon's.

Fix safety
----------
The fix is made only if the policy says `fix: true`: a refusal is clearer than a program that
silently sees no GPU. It removes the variable. In a container without a GPU where a prefix in
`envFrom` could set the variable again, it overwrites the value instead.

References
----------
- NVIDIA container toolkit, `internal/config/image/cuda_image.go` (`visibleEnvVars`)
- ROCm container toolkit, `internal/oci/oci.go`
"""

from collections.abc import Iterator

from rules.base.text_matching import matches
from rules.base.traits import GPU_VARIABLE, OTHER_GPU_VARIABLE
from rules.gpu.devices import uses_device_plugin
from rules.gpu.visibility import (
    Visibility,
    describe_setting,
    display_variable,
    hide_fix,
    matching_prefixes,
    remove_and_request_advice,
    remove_edits,
    visibility,
    visible_variables,
)
from rules.in_process import variables
from rules.in_process.expression import POLICY, all_of, any_of, choose, is_in, not_, text
from rules.in_process.statement import CONTAINER, VARIABLE, Statement
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

VISIBILITIES_WITH_DEVICES = (Visibility.GRANTED, Visibility.REFERENCE)
REMOVAL = "remove it"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each alternative variable by which a container grants itself devices."""
    if not pod.profile.alternative_variables:
        return
    for container in pod.containers:
        for variable in dict.fromkeys(_alternative_variables(container)):
            may_grant = visibility(container, variable) in VISIBILITIES_WITH_DEVICES
            if may_grant and variable not in visible_variables(container):
                yield _finding(container, variable)


def _alternative_variables(container: Container) -> Iterator[str]:
    for pattern in container.profile.alternative_variables:
        if pattern in container.env:
            yield pattern
        elif "*" in pattern:
            yield from (name for name in container.env if matches(pattern, name))


def _finding(container: Container, variable: str) -> Finding:
    return Finding(
        path=container.env_path(variable),
        key=display_variable(variable),
        message=_message(container, describe_setting(container, variable)),
        container=container,
        help=remove_and_request_advice(container, REMOVAL),
        fix=_fix(container, variable),
        action=Action.DENY if _is_certainly_for_gpus(container, variable) else Action.WARN,
    )


def _message(container: object, setting: object) -> str:
    return (
        f"{container} {setting}, which the container runtime may take before "
        "NVIDIA_VISIBLE_DEVICES: it may get devices that the scheduler has not counted"
    )


def _is_certainly_for_gpus(container: Container, variable: str) -> bool:
    """Return whether the variable is known by name or to a chosen profile, or asks for all cards.

    Names of other things may fit a pattern as well, such as DOCKER_RESOURCE_TIMEOUT.
    """
    profile = container.profile
    if variable in profile.alternative_variables:
        return True
    words = (container.env_value(variable) or "").lower().split(",")
    is_all = any(word.strip() == "all" for word in words)
    return is_all or any(matches(p, variable) for p in profile.chosen_alternatives)


def _fix(container: Container, variable: str) -> Fix:
    if matching_prefixes(container, variable) and not uses_device_plugin(container):
        return hide_fix(container, variable)
    return Fix(f"remove {display_variable(variable)}", remove_edits(container, variable))


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, v = CONTAINER, VARIABLE
    is_named = is_in(v.name, POLICY.alternatives)
    is_alternative = any_of(
        is_named, POLICY.alternativePatterns.exists(lambda p: v.name.matches(p))
    )
    may_grant = is_in(v.state, [state.value for state in VISIBILITIES_WITH_DEVICES])
    asks_for_all = v.value.lowerAscii().split(",").exists(lambda word: word.trim() == "all")
    is_certainly_for_gpus = any_of(
        is_named, asks_for_all, POLICY.chosenPatterns.exists(lambda p: v.name.matches(p))
    )
    statement = Statement(
        "variable",
        where=all_of(is_alternative, not_(v.isVisible), may_grant),
        message=text(_message(c.text, v.setting)),
        help=variables.remove_and_request_advice(REMOVAL),
        action=choose((is_certainly_for_gpus, "deny"), otherwise="warn"),
    )
    return (statement,)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE, OTHER_GPU_VARIABLE))
