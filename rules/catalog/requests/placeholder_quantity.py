"""The amount of a GPU resource is a placeholder that nothing has filled in.

What it does
------------
Finds limits and requests of GPU resources such as `$GPUS`, `${GPUS}` and
`{{ .Values.gpus }}`.

Why it matters
--------------
What the pod will ask for is not known, so none of the rules about amounts can judge it: look at
the rendered file instead. Kubernetes itself replaces nothing in amounts and refuses such a
text.

References
----------
- https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.context import Context
from rules.devices import devices
from rules.pod import Pod
from rules.quantity import Placeholder
from rules.reading import shown
from rules.rule import Action, Finding, Rule
from rules.traits import ODD_AMOUNT


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each amount yet to be filled in; one finding if limit and request agree."""
    if pod.layout.gpu_field:
        return
    for container in pod.containers:
        for name, device in devices(container).items():
            for field, amount in (("limits", device.limit), ("requests", device.request)):
                if not isinstance(amount, Placeholder):
                    continue
                if field == "requests" and amount == device.limit:
                    continue
                line = shown(f"{name}: {amount.text}")
                message = f"{container} sets {line} in {field}, which is yet to be filled in"
                advice = "render the template first (envsubst, helm template, kustomize build)"
                path = (*container.resources_path, field, name)
                yield Finding(path, f"{field}.{name}", message, container, advice)


RULE = Rule(
    name="placeholder-quantity",
    subject=Pod,
    action=Action.AUDIT,
    since="0.1",
    summary="the amount of a GPU resource is a placeholder that nothing has filled in",
    check=check,
    needs=(ODD_AMOUNT,),
)
