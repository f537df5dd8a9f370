"""A resource claim has parameters that NVIDIA's DRA driver refuses.

What it does
------------
Checks the `opaque` parameters that a ResourceClaim or a ResourceClaimTemplate has for the driver
`gpu.nvidia.com`. Finds a kind or an apiVersion that the driver does not know, unknown fields of a
`GpuConfig` or a `MigDeviceConfig`, values of the wrong type, strategies and time slices that do not
exist, settings of another strategy than the chosen one, an MPS share outside 0 to 100 percent, an
MPS memory limit of less than a mebibyte, and sharing of devices that the same claim requests with
admin access.

Only a note: a field or a kind that resembles none of the driver's, since a newer release of the
driver may know it; and what needs a feature gate of the driver that is off by default, such as
`MPSSupport` for the strategy `MPS`, since no manifest of users says whether it is on.

Why it matters
--------------
Kubernetes takes the parameters unread. The driver decodes them strictly: one unknown field, and it
refuses the whole claim. Where its webhook is installed, the claim is not created. Everywhere else
the claim is created, a GPU is allocated, and the pod waits in ContainerCreating.

References
----------
- https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/main/cmd/webhook/main.go
- https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/tree/main/api/nvidia.com/resource/v1beta1
"""

from collections.abc import Container, Mapping
from typing import Any

from rules.base.json_values import Path, as_object, as_objects, as_text, display
from rules.base.traits import CLAIM_OBJECT
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, define_rule

DRIVER = "gpu.nvidia.com"
REFUSAL = f"NVIDIA's DRA driver refuses the parameters for {DRIVER}"
REFUSAL_BY_SOME = f"not every release of NVIDIA's DRA driver accepts the parameters for {DRIVER}"


def check(claim: DeviceClaim, _context: Context) -> Findings:
    """Yield each fault of the parameters for NVIDIA's driver."""
    administered = {r.name for r in claim.requests() if r.fields.get("adminAccess") is True}
    for index, config in as_objects(as_object(claim.spec.get("devices")).get("config")):
        opaque = as_object(config.get("opaque"))
        parameters = opaque.get("parameters")
        if opaque.get("driver") != DRIVER or not isinstance(parameters, dict):
            continue
        place: Path = ("devices", "config", index, "opaque", "parameters")
        yield from _faults_of_parameters(claim, place, parameters)
        name = _first_administered_name(config.get("requests"), administered)
        if name and isinstance(parameters.get("sharing"), dict):
            yield _shared_admin_devices(claim, (*place, "sharing"), name)


def _faults_of_parameters(
    claim: DeviceClaim, place: Path, parameters: Mapping[str, Any]
) -> Findings:
    from rules.profile.platforms.nvidia_parameters import faults_of_parameters  # noqa: PLC0415  # rarely needed

    for fault in faults_of_parameters(parameters):
        path = (*place, *fault.path)
        refusal = REFUSAL if fault.is_certain else REFUSAL_BY_SOME
        if fault.gate:
            refusal = f"{REFUSAL} unless its feature gate {fault.gate} is on"
        yield Finding(
            path=(*claim.path, *path),
            key=".".join(filter(None, (".".join(map(str, path)), fault.gate))),
            message=f"{refusal}: they {fault.text}",
            help=fault.help,
            action=Action.DENY if fault.is_certain else Action.AUDIT,
        )


def _first_administered_name(names: Any, administered: Container[str]) -> str:
    """The first of the names that is among `administered`; empty if none is."""
    listed = names if isinstance(names, list) else []
    return next((name for name in map(as_text, listed) if name in administered), "")


def _shared_admin_devices(claim: DeviceClaim, place: Path, request: str) -> Finding:
    return Finding(
        path=(*claim.path, *place),
        key=f"{'.'.join(map(str, place))}.adminAccess",
        message=(
            f"{REFUSAL}: they share the devices of the request {display(request)}, which has "
            "admin access, and sharing concerns the whole device"
        ),
        help="remove sharing, or adminAccess from the request",
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CLAIM_OBJECT,))
