"""The request of a GPU only repeats its limit.

What it does
------------
Finds GPU resources whose request equals their limit. Only the linter reports it: at admission the
API server has already copied limits into requests. The rule is off unless a policy sets an
action, because the repetition is common and harmless.

Why it matters
--------------
Kubernetes copies the limit of a GPU into its requests. Two numbers that must be equal are one
more place to forget when the amount changes, and then the API server refuses the pod.

Fix safety
----------
The fix removes the request only if the policy says `fix: true`: the pod stays the same, but how
the file is written is the user's decision.

References
----------
- https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/
"""

from rules.base.json_values import display, remove
from rules.base.quantity import Quantity
from rules.base.traits import GPU_RESOURCE
from rules.gpu.devices import devices
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, context: Context) -> Findings:
    """Yield each GPU request that equals its limit."""
    if context.operation is not None or pod.exists:
        return  # the API server has already copied limits into requests
    for container in pod.containers:
        if not container.requests:
            continue
        for name, device in devices(container).items():
            limit, request = device.limit, device.request
            if not isinstance(limit, Quantity) or not isinstance(request, Quantity):
                continue
            if limit.is_integer and limit.nano > 0 and limit.equal_to(request):
                line = display(f"{name}: {request.text}")
                message = f"{container} requests {line}, which only repeats the limit"
                path = (*container.resources_path, "requests", name)
                fix = Fix(f"remove the request of {name}", (remove(path),))
                advice = f"leave {name} out of resources.requests: the limit is enough"
                yield Finding(
                    path=path,
                    key=f"requests.{name}",
                    message=message,
                    container=container,
                    help=advice,
                    fix=fix,
                )


RULE = define_rule(
    check, action=Action.OFF, since="0.1", needs=(GPU_RESOURCE,), needs_resources=True
)
