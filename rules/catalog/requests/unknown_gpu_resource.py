"""The name of a GPU resource is misspelt.

What it does
------------
Finds names in `limits` and `requests` that are known mistakes for a GPU resource (`gpu`,
`nvidia.com/gpus`, `nvidia.com/gpu-1`), that spell a MIG profile otherwise than NVIDIA's device
plugin does (`nvidia.com/mig-1g10gb` for `nvidia.com/mig-1g.10gb`), that carry a quota's prefix
(`requests.nvidia.com/gpu`), or that differ by a letter or two from a known resource of the same
vendor; these last only give a warning. All other names are ignored.

Why it matters
--------------
The API server refuses a name without a domain, but accepts `nvidia.com/gpus` without a warning:
the pod then waits forever for a node that offers it.

Fix safety
----------
The fix corrects the name only if the policy says `fix: true` and the right name is not there as
well: the cluster may after all have a resource of the odd name.

References
----------
- https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/
- Kubernetes, `pkg/apis/core/helper/helpers.go`
- NVIDIA, "Multi-Instance GPU User Guide", names of profiles
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from rules.base.json_access import display
from rules.base.json_patch import Edit, put, remove
from rules.base.spelling import within_slips
from rules.finding import Action, Finding, Fix
from rules.gpu.api_validation import api_refuses_amounts
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.rule import define_rule
from rules.traits.bits import GPU_RESOURCE, UNKNOWN_RESOURCE

ORDINARY = frozenset({"cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"})
# Right name -> the wrong ones that users write. The table grows, hence more than a hundred lines.
MISTAKES_FOR = {
    "nvidia.com/gpu": "gpu gpus GPU nvidia nvidia-gpu nvidia/gpu nvidia/gpus nvidia.com nvidia.gpu"
    " nvidia.com.gpu nvidia.com-gpu nvidia-com/gpu nvidia.com/gpus nvidia.com/gup nvdia.com/gpu"
    " nvidea.com/gpu nividia.com/gpu nvidia.io/gpu nvidia.com/nvidia-gpu nvidia.com/gpu-count"
    " alpha.kubernetes.io/nvidia-gpu kubernetes.io/gpu",
    "amd.com/gpu": "amd amd-gpu amd/gpu amd.gpu amd.com.gpu amd.com/gpus rocm.amd.com/gpu",
    "gpu.intel.com/i915": "intel/gpu intel.com/gpu intel.com/i915 gpu.intel.com gpu.intel.com/gpu",
    "aliyun.com/gpu-mem": "gpu-mem aliyun/gpu-mem aliyun.com/gpu_mem aliyun.com/gpu-memory",
    "aliyun.com/gpu-core.percentage": "aliyun.com/gpu-core aliyun.com/gpu-core-percentage",
}
MISTAKES = {wrong: right for right, texts in MISTAKES_FOR.items() for wrong in texts.split()}
# A number of GPUs in the name, where it belongs in the amount.
COUNT_IN_NAME = re.compile(r"nvidia\.com/gpu-[0-9]{1,3}")
# A MIG profile with or without its punctuation: perhaps compute slices, slices, memory, and what
# the instance has besides, such as `.me`, `.me.all`, `.gfx` and `-me`; or the name of its shares.
MIG_PROFILE = re.compile(
    r"nvidia\.com/mig[-_.]?(?:([0-9])c[-_.]?)?([0-9])g[-_.]?([0-9]{1,3})g(?:b|ib)?([.-][a-z.-]+)?",
    re.IGNORECASE,
)
# Names that differ from the right one by a few letters. Short names have too many real neighbours
# (gpu, vgpu, npu), so one difference is allowed for every five letters.
LETTERS_PER_SLIP, MOST_SLIPS = 5, 2
# Comparing takes time, and no real container has so many misspelt names.
MOST_COMPARED = 50


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each misspelt name, once for limits and requests together."""
    for container in pod.containers:
        mistakes = _mistakes(container)
        times = Counter(right for right, _ in mistakes.values())
        for name, (right, action) in mistakes.items():
            kind = "a mistake for" if action is Action.DENY else "not known but close to"
            refused = api_refuses_amounts(name, container.limits, container.requests)
            end = "the API server refuses it" if refused else "the pod waits for a node that has it"
            message = (
                f"{container} asks for {display(name)}, which is {kind} {display(right)}: {end}"
            )
            field = "limits" if name in container.limits else "requests"
            path, key = (*container.resources_path, field, name), f"{field}.{name}"
            fix = _renaming(container, name, right) if times[right] == 1 else None
            advice = f"write {right}"
            yield Finding(
                path=path,
                key=key,
                message=message,
                container=container,
                help=advice,
                fix=fix,
                action=action,
                api_refuses=refused,
            )


def _mistakes(container: Container) -> dict[str, tuple[str, Action]]:
    """By misspelt name: the right one, and DENY for a known mistake or WARN for a likely one."""
    mistakes, profile = {}, container.profile
    compared: list[str] = []
    for name in (*container.limits, *container.requests):
        if name in ORDINARY or name in profile.resources:
            continue
        if meant := _right_shape(name):
            mistakes[name] = meant, Action.DENY
            continue
        if profile.resource(name):
            continue
        spellings = (name.removeprefix("requests.").removeprefix("limits."), name.lower())
        if right := MISTAKES.get(name) or next(filter(profile.resource, spellings), None):
            mistakes[name] = right, Action.DENY
        elif len(compared) < MOST_COMPARED:
            compared.append(name)
            if nearest := _nearest(name, profile):
                mistakes[name] = nearest, Action.WARN
    return mistakes


def _right_shape(name: str) -> str:
    """The name that is meant, if `name` has a count in it or is no MIG profile's; else empty."""
    if COUNT_IN_NAME.fullmatch(name):
        return "nvidia.com/gpu"
    profile = MIG_PROFILE.fullmatch(name)
    if profile is None:
        return ""
    compute, slices, memory, rest = profile.groups()
    parts = f"{compute}c." if compute else ""
    right = f"nvidia.com/mig-{parts}{slices}g.{memory}gb{(rest or '').lower()}"
    return "" if right == name else right


def _renaming(container: Container, name: str, right: str) -> Fix | None:
    edits: list[Edit] = []
    for field, amounts in (("limits", container.limits), ("requests", container.requests)):
        if right in amounts:
            return None
        if name in amounts:
            root = (*container.resources_path, field)
            edits += put((*root, right), amounts[name]), remove((*root, name))
    return Fix(f"rename it to {right}", tuple(edits))


def _nearest(name: str, profile: Profile) -> str | None:
    domain, slash, suffix = name.partition("/")
    # Names with digits are other models, not typing errors.
    if not slash or any(letter.isdigit() for letter in suffix):
        return None
    prefix = f"{domain}/"
    for known in profile.resources:
        other = known.removeprefix(prefix)
        slips = min(len(other) // LETTERS_PER_SLIP, MOST_SLIPS)
        if other != known and "*" not in other and within_slips(slips, suffix, other):
            return known
    return None


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    # The patterns of profiles know misspelt profiles of MIG too.
    needs=(UNKNOWN_RESOURCE | GPU_RESOURCE,),
    needs_resources=True,
)
