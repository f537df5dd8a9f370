"""The amount of a GPU resource is a placeholder that nothing has filled in.

What it does
------------
Finds limits and requests of GPU resources such as `$GPUS`, `${GPUS}` and `{{ .Values.gpus }}`.

Why it matters
--------------
The manifest does not say what the pod will request, so no rule about amounts can evaluate it:
check the rendered file instead. Kubernetes itself replaces nothing in amounts and refuses such a
text.

References
----------
- https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from rules.base.json_values import display
from rules.base.quantity import Placeholder
from rules.base.traits import UNUSUAL_AMOUNT
from rules.gpu.devices import devices
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each placeholder; one finding if limit and request have the same one."""
    for container in pod.containers:
        for name, device in devices(container).items():
            for field, amount in (("limits", device.limit), ("requests", device.request)):
                if not isinstance(amount, Placeholder):
                    continue
                if field == "requests" and amount == device.limit:
                    continue
                line = display(f"{name}: {amount.text}")
                yield Finding(
                    path=(*container.resources_path, field, name),
                    key=f"{field}.{name}",
                    message=f"{container} sets {line} in {field}, which is yet to be filled in",
                    container=container,
                    help="render the template first (envsubst, helm template, kustomize build)",
                )


in_process = "API servers refuse such pods and templates before they ask policies"


RULE = define_rule(
    check, action=Action.AUDIT, since="0.1", needs=(UNUSUAL_AMOUNT,), needs_resources=True
)
