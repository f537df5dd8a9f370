"""A GPU resource is asked for in an amount that is not a whole number.

What it does
------------
Finds limits and requests of GPU resources that are fractions (`0.5`, `500m`), negative, or not
quantities (`1GPU`). Every spelling of a whole number is fine: `2.0`, `1000m`, `1e0`.

Why it matters
--------------
Kubernetes allocates whole GPUs, and the API server refuses any other amount, with one exception:
it accepts `0.9999` as 1, because it rounds up first. To get less than a card, request the
resource of a sharing system, set its annotation, or select nodes that share their cards: the help
says which, as far as the profile or the pod shows it.

Fix safety
----------
The fix rounds a limit up, and its request with it, only if the policy says `fix: true`: a user
who writes `0.5` did not ask for a whole card. A request without a limit is not changed.

References
----------
- Kubernetes, `pkg/apis/core/validation/validation.go` and `pkg/api/resource/quantity.go`
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity, invalid_count_reason
from rules.base.traits import NVIDIA_CARD, UNUSUAL_AMOUNT
from rules.gpu.amounts import api_refuses_amounts, api_refuses_count, round_up_fix
from rules.gpu.devices import Device, devices
from rules.placement.node_labels import selected_labels
from rules.placement.selected_cards import selects_shared_cards
from rules.profile.platforms.gke import SHARING_LABEL
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

MEMORY_UNITS = ("GiB", "MiB")
GKE_PREFIX = "cloud.google.com/gke-"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each amount that is not a whole number; one finding if limit and request are equal."""
    for container in pod.containers:
        for device in devices(container).values():
            if fault := invalid_count_reason(device.limit):
                yield _finding(pod, container, device, "limits", fault)
            if (fault := invalid_count_reason(device.request)) and not _limit_equals_request(
                device
            ):
                yield _finding(pod, container, device, "requests", fault)


def _limit_equals_request(device: Device) -> bool:
    if isinstance(device.limit, Quantity) and isinstance(device.request, Quantity):
        return device.limit.equal_to(device.request)
    return device.limit == device.request


def _finding(pod: Pod, c: Container, device: Device, field: str, fault: str) -> Finding:
    name, amount = device.name, device.limit if field == "limits" else device.request
    refused = api_refuses_amounts(name, c.limits, c.requests)
    if refused and not api_refuses_count(amount):
        fault = "a fraction, which the API server refuses without a limit that equals it"
    step, fix = device.resource.step, None
    advice = f"write a {'whole number' if step == 1 else f'multiple of {step}'} under "
    advice += f"{c.resources_path[-1]}.limits"
    if isinstance(amount, Quantity) and amount.nano > 0:
        advice += _share_advice(device, pod)
        fix = round_up_fix(c, name, field, limit=device.limit, request=device.request, step=step)
    return Finding(
        path=(*c.resources_path, field, name),
        key=f"{field}.{name}",
        message=(
            f"{c} sets {display(f'{name}: {amount.text if amount else None}')} in {field}, {fault}"
        ),
        container=c,
        help=advice,
        fix=fix,
        api_refuses=refused,
    )


def _share_advice(device: Device, pod: Pod) -> str:
    """Return how the platform offers shares of the requested cards; empty if it does not."""
    profile, vendor = pod.profile, device.resource.vendor
    if device.resource.sharing == "share":
        return ""
    if device.name == NVIDIA_CARD and selects_shared_cards(pod):
        return ": on the nodes that the pod selects, 1 is a share of a card"
    fraction = next((f for f in profile.fractions if f.vendor == vendor), None)
    if fraction:
        return f", or ask for a share by the pod annotation {fraction.annotations[0]}"
    known = (resource for name in profile.active if (resource := profile.resource(name)))
    shares = [r for r in known if r.sharing == "share" and r.vendor == vendor]
    # A part of a card is above all a part of its memory.
    share = next((one for one in shares if one.unit in MEMORY_UNITS), None)
    if share is None and device.name == NVIDIA_CARD and _selects_nodes_of_gke(pod):
        return f", or ask for 1 on nodes that share their cards: select them by {SHARING_LABEL}"
    if share is None and not shares:
        return ""
    share = share or shares[0]
    amount = f" (in {share.unit})" if share.unit in MEMORY_UNITS else ""
    beside = f" beside {share.companions[0]}" if share.companions else ""
    return f", or ask for a share by {share.name}{amount}{beside} where the cluster offers it"


def _selects_nodes_of_gke(pod: Pod) -> bool:
    return any(label.startswith(GKE_PREFIX) for _, label in selected_labels(pod))


in_process = "API servers refuse such pods and templates before they ask policies"


RULE = define_rule(
    check, action=Action.DENY, since="0.1", needs=(UNUSUAL_AMOUNT,), needs_resources=True
)
