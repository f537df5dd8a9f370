"""A GPU is requested without a limit.

What it does
------------
Finds a GPU resource that is in a container's `requests`, with a whole number, and not in its
`limits`. Other rules report amounts that are not whole numbers.

Why it matters
--------------
GPUs cannot be overcommitted, so the API server refuses a GPU request without a limit. It refuses
a Deployment or a Job with this fault when the user applies it. An operator that creates the pod
from its custom resource never gets one.

The `resourcesPerNode` of a Kubeflow TrainJob is only noted: Kubeflow Trainer lays it over the
resources of the training runtime, which may have the limit. Versions before that change replace
the runtime's resources, and there the pods are refused.

Fix safety
----------
The fix adds the limit by default, with the amount of the request: Kubernetes accepts no other
amount. The request stays. In a TrainJob it adds the limit only if the policy says `fix: true`.

References
----------
- https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/
- Kubernetes, `pkg/apis/core/validation/validation.go`
- https://github.com/kubeflow/trainer/pull/3602
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import display, put
from rules.base.quantity import Quantity
from rules.base.traits import UNUSUAL_AMOUNT
from rules.gpu.devices import Device, devices
from rules.in_process.statement import Mutation, add
from rules.profile.profile import Profile
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each GPU resource that has a whole number as request and no limit."""
    for container in pod.containers:
        # The API server refuses any resources in an ephemeral container: a limit would not help.
        if not container.requests or container.role == "ephemeral":
            continue
        # Without an image this is a patch of a container in another file, which may set the limit.
        if not container.image and pod.is_final:
            continue
        for device in devices(container).values():
            if device.limit is None and _requests_whole_number(device):
                yield _finding(container, device, overlay=pod.layout.resources_overlay)


def _requests_whole_number(device: Device) -> bool:
    amount = device.request
    return isinstance(amount, Quantity) and amount.is_integer and amount.nano >= 0


def _finding(container: Container, device: Device, *, overlay: bool) -> Finding:
    name, value = device.name, container.requests[device.name]
    line = display(f"{name}: {device.request.text}" if device.request else name)
    reason = "GPUs cannot be overcommitted, so the API server refuses a request alone"
    if overlay:
        reason = "the API server refuses its pods, unless the training runtime sets the same limit"
    resources = container.resources_path[-1]
    fix = None
    if container.resources.get("limits") is None or isinstance(container.resources["limits"], dict):
        limit = put((*container.resources_path, "limits", name), value)
        fix = Fix(f"set the limit of {name} as the request", (limit,), safe=not overlay)
    return Finding(
        path=(*container.resources_path, "requests", name),
        key=f"limits.{name}",
        message=f"{container} requests {line} without a limit: {reason}",
        container=container,
        help=f"write {line} under {resources}.limits; the request may then be left out",
        fix=fix,
        action=Action.AUDIT if overlay else Action.DENY,
        api_refuses=not overlay,
    )


in_process = "API servers refuse such pods and templates before they ask policies"


def in_process_fix(_options: Mapping[str, Any], _profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL. API servers refuse pods after they have asked policies that change them."""
    resources, limits = "c.raw.?resources", "c.raw.?resources.?limits"
    requests = f"{resources}.?requests.orValue({{}})"
    known = (
        "(n in variables.resources || variables.resourcePatterns"
        ".exists(p, n.startsWith(p.prefix) && n.matches(p.pattern)))"
    )
    whole = f"[quantity(string({requests}[n]))].exists(q, q.isInteger() && sign(q) >= 0)"
    alone = f"{requests}.filter(n, {known} && !(n in {limits}.orValue({{}})) && {whole})"
    create = add('at + "/resources/limits"', "{}")
    path = 'at + "/resources/limits/" + jsonpatch.escapeKey(n)'
    change = (
        f"({limits}.hasValue() ? [] : [{create}])"
        f" + {alone}.map(n, {add(path, f'string({requests}[n])')})"
    )
    return (Mutation("container", f"c.image != '' && {alone}.size() > 0", change),)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(UNUSUAL_AMOUNT,))
