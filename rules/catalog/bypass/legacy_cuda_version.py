"""A container without a GPU of NVIDIA makes its image look older than NVIDIA_VISIBLE_DEVICES.

What it does
------------
Finds a container to which no device plugin gives a GPU, or one of another maker, which does not set
`NVIDIA_VISIBLE_DEVICES`, and which sets `CUDA_VERSION` without a literal, non-empty
`NVIDIA_REQUIRE_CUDA`. For the first two variables a `valueFrom` reference counts as setting it, and
so does a prefix in `envFrom` that a key can complete to its name. Pods for machines without cards
of NVIDIA, as with TPUs, are not reported.

Why it matters
--------------
NVIDIA's container toolkit assumes that an image with `CUDA_VERSION` and without
`NVIDIA_REQUIRE_CUDA` is older than `NVIDIA_VISIBLE_DEVICES`, and gives it every GPU of the node.
Setting `CUDA_VERSION` in the pod is enough, unless the image sets `NVIDIA_REQUIRE_CUDA`.

Fix safety
----------
The fix adds `NVIDIA_VISIBLE_DEVICES=void` by default in pods that are created exactly as written:
the container requests no GPU of NVIDIA and loses none that it was meant to have. Cards of other
makers do not depend on the variable. The fix is made only if the policy says `fix: true`

- in a custom resource or a PodTemplate, whose users may add the GPU;
- in a pod that names a GPU runtime class and requests no GPU: an author who names the class means
  the GPU;
- in a file, in a pod that asks for a part of a GPU by an annotation of a system whose profile is
  not chosen.

There is no fix beside an extended resource that may be a GPU by another name.

Options
-------
`every_container`: make the fix by default in all pods that are created exactly as written, also
with a GPU runtime class and beside such a resource. The policy sets the option by
`voidEveryContainer: true`.

References
----------
- NVIDIA container toolkit, `internal/config/image/cuda_image.go` (`IsLegacy`)
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import Path
from rules.base.traits import GPU_VARIABLE
from rules.gpu.devices import (
    describe_request,
    gets_gpu_by_patch,
    means_unrequested_gpu,
    name_of_unknown_device,
    share_of_unknown_platform,
    uses_device_plugin,
)
from rules.gpu.visibility import (
    CUDA_VERSION,
    NVIDIA_REQUIRE_CUDA,
    NVIDIA_VISIBLE_DEVICES,
    OF_ANOTHER_MAKER,
    advice_to_hide,
    describe_setting,
    hide_fix,
    is_unset,
    looks_like_legacy_image,
    matching_prefixes,
    may_be_given_by_variable,
)
from rules.in_process import requests
from rules.in_process.expression import OBJECT, Expression, all_of, any_of, choose, not_, text
from rules.in_process.statement import CONTAINER, HIDE, VARIABLE, Mutation, Statement
from rules.in_process.variables import has_prefix, has_variable
from rules.placement.gpu_nodes import excludes_nvidia
from rules.profile.profile import Profile
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

PREFIX_SETTING = f"takes variables with a prefix that a key can complete to {CUDA_VERSION},"
ADVICE = f"add {NVIDIA_VISIBLE_DEVICES} with the value void, or remove {CUDA_VERSION}"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each container that would get all GPUs because its image looks old."""
    if excludes_nvidia(pod):
        return
    inventory = context.inventory
    is_meant = means_unrequested_gpu(pod, inventory) or gets_gpu_by_patch(pod, inventory)
    share = share_of_unknown_platform(pod, context)
    is_meant = is_meant or bool(share)
    every = bool(context.options.get("every_container"))
    safe = pod.is_final and (every or not is_meant)
    for container in pod.containers:
        if (
            (CUDA_VERSION in container.env or container.raw.get("envFrom"))
            and looks_like_legacy_image(container)
            and is_unset(container)
            and not may_be_given_by_variable(container)
        ):
            finding = _finding(container, share, safe=safe)
            may_have_gpu = not every and bool(name_of_unknown_device(container))
            yield finding._replace(fix=None) if may_have_gpu else finding


def _finding(container: Container, share: str, *, safe: bool) -> Finding:
    if CUDA_VERSION in container.env:
        path: Path = container.env_path(CUDA_VERSION)
        setting = describe_setting(container, CUDA_VERSION)
    else:
        path = (
            *container.path,
            "envFrom",
            matching_prefixes(container, CUDA_VERSION)[-1][0],
            "prefix",
        )
        setting = PREFIX_SETTING
    is_foreign = uses_device_plugin(container)
    request = OF_ANOTHER_MAKER if is_foreign else describe_request(container)
    return Finding(
        path=path,
        key=CUDA_VERSION,
        message=_message(container, setting, request),
        container=container,
        help=advice_to_hide(ADVICE, share),
        fix=hide_fix(container, safe=safe),
    )


def _message(container: object, setting: object, request: object) -> str:
    return (
        f"{container} {setting} without {NVIDIA_REQUIRE_CUDA} or {NVIDIA_VISIBLE_DEVICES} and "
        f"{request}: NVIDIA's runtime may give it every GPU of the node"
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, v = CONTAINER, VARIABLE
    request = choose((c.fromPlugin, OF_ANOTHER_MAKER), otherwise=requests.describe_request())
    is_prefixed = all_of(not_(has_variable(CUDA_VERSION)), has_prefix(CUDA_VERSION))
    return (
        Statement(
            "variable",
            where=all_of(v.name == CUDA_VERSION, _gets_every_gpu()),
            message=text(_message(c.text, v.setting, request)),
            help=ADVICE,
        ),
        Statement(
            "container",
            where=all_of(is_prefixed, _gets_every_gpu()),
            message=text(_message(c.text, PREFIX_SETTING, request)),
            help=ADVICE,
        ),
    )


def in_process_fix(options: Mapping[str, Any], _profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    if options.get("every_container"):
        return (Mutation("container", _gets_every_gpu(), HIDE, True),)
    has_no_unknown_device = requests.unknown_devices().size() == 0
    is_safe = any_of(OBJECT.requestsGpu, not_(OBJECT.usesGpuRuntime))
    return (Mutation("container", all_of(_gets_every_gpu(), has_no_unknown_device), HIDE, is_safe),)


def _gets_every_gpu() -> Expression:
    """Return whether the container would get all GPUs because its image looks old."""
    c = CONTAINER
    return all_of(
        not_(OBJECT.excludesNvidia),
        c.looksLegacy,
        c.isUnset,
        not_(requests.may_be_given_by_variable()),
    )


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(GPU_VARIABLE,),
    options={"every_container": False},
)
