"""The parameters of a claim that NVIDIA's DRA driver refuses.

The driver decodes them strictly and then validates them, in its webhook, if that is installed, and
again on the node. Sources: `cmd/webhook/main.go` and `api/nvidia.com/resource/v1beta1` of
kubernetes-sigs/dra-driver-nvidia-gpu, commit 3fe9487. Nothing in a cluster's objects says which
feature gates of the driver are on; those that are off by default are named.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import Path, as_text, display
from rules.base.quantity import Malformed, Quantity, parse
from rules.base.text_matching import has_placeholder, nearest_word

GROUP = "resource.nvidia.com"
API_VERSION = f"{GROUP}/v1beta1"
GPU_KIND, MIG_KIND = "GpuConfig", "MigDeviceConfig"
# The other kinds, whose fields differ from release to release.
OTHER_KINDS = (
    *("VfioDeviceConfig", "LocalIPCConfig"),
    *("ComputeDomainChannelConfig", "ComputeDomainDaemonConfig"),
)
TIME_SLICING_STRATEGY, MPS_STRATEGY = "TimeSlicing", "MPS"
STRATEGIES = (TIME_SLICING_STRATEGY, MPS_STRATEGY)
# What needs a feature gate of the driver that is off by default: `pkg/featuregates/featuregates.go`
# and `api/nvidia.com/resource/v1beta1/sharing.go` and `vfiodeviceconfig.go`.
GATE_BY_STRATEGY = {TIME_SLICING_STRATEGY: "TimeSlicingSettings", MPS_STRATEGY: "MPSSupport"}
GATE_BY_KIND = {"VfioDeviceConfig": "PassthroughSupport"}
TIME_SLICE_INTERVALS = ("Default", "Short", "Medium", "Long")
SLICING_FIELD, MPS_FIELD = "timeSlicingConfig", "mpsConfig"
SHARING_FIELDS = {
    GPU_KIND: ("strategy", SLICING_FIELD, MPS_FIELD),
    MIG_KIND: ("strategy", MPS_FIELD),
}
PERCENTAGE_FIELD = "defaultActiveThreadPercentage"
MEMORY_FIELD, MEMORY_BY_DEVICE_FIELD = (
    "defaultPinnedDeviceMemoryLimit",
    "defaultPerDevicePinnedMemoryLimit",
)
# Where fields belong that are written one level too high.
FIELDS_BY_PARENT: Mapping[str, tuple[str, ...]] = {
    "sharing": ("strategy", SLICING_FIELD, MPS_FIELD),
    SLICING_FIELD: ("interval",),
    MPS_FIELD: (PERCENTAGE_FIELD, MEMORY_FIELD, MEMORY_BY_DEVICE_FIELD),
}
MIN_MEMORY_BYTES = 2**20  # bytes: the driver hands whole mebibytes to the MPS daemon


class ParameterFault(NamedTuple):
    """A fault at `path` of the parameters.

    `text` completes "the parameters". A fault that is not certain may be none for a release of
    the driver that is newer than the sources. With a `gate` it is none if the gate is on.
    """

    path: Path
    text: str
    help: str
    is_certain: bool = True
    gate: str = ""


def faults_of_parameters(parameters: Mapping[str, Any]) -> Iterator[ParameterFault]:
    """Yield the faults for which the driver refuses `parameters`."""
    api_version, kind = as_text(parameters.get("apiVersion")), as_text(parameters.get("kind"))
    if has_placeholder(api_version) or has_placeholder(kind):
        return
    if not api_version or not kind:
        lacking = "kind" if api_version else "apiVersion"
        advice = f"write apiVersion: {API_VERSION} and a kind, such as {GPU_KIND}"
        yield ParameterFault((), f"have no {lacking}", advice)
    elif api_version.partition("/")[0] != GROUP:
        text = f"have the apiVersion {display(api_version)}, which it does not know"
        yield ParameterFault(("apiVersion",), text, f"write {API_VERSION}")
    elif api_version == API_VERSION and kind not in OTHER_KINDS:
        yield from _faults_of(kind, parameters)
    elif gate := GATE_BY_KIND.get(kind):
        yield _gate_fault(("kind",), f"have the kind {kind}", gate)


def _gate_fault(path: Path, text: str, gate: str) -> ParameterFault:
    advice = f"see whether {gate}=true is among the featureGates of the driver's chart"
    return ParameterFault(path, text, advice, is_certain=False, gate=gate)


def _faults_of(kind: str, parameters: Mapping[str, Any]) -> Iterator[ParameterFault]:
    if kind not in SHARING_FIELDS:
        kinds = (*SHARING_FIELDS, *OTHER_KINDS)
        right = nearest_word(kind, kinds)
        advice = f"write {right}" if right else f"write one of {', '.join(kinds)}"
        text = f"have the kind {display(kind)}, which it does not know"
        yield ParameterFault(("kind",), text, advice, is_certain=right is not None)
        return
    yield from _unknown_fields(parameters, ("apiVersion", "kind", "sharing"), ())
    sharing = yield from _object_in_field(parameters, "sharing", ())
    if sharing is not None:
        yield from _faults_of_sharing(sharing, SHARING_FIELDS[kind])


def _faults_of_sharing(
    sharing: Mapping[str, Any], fields: tuple[str, ...]
) -> Iterator[ParameterFault]:
    place: Path = ("sharing",)
    yield from _unknown_fields(sharing, fields, place)
    strategy = sharing.get("strategy")
    yield from _choice_faults(sharing, "strategy", STRATEGIES, place, is_required=True)
    if strategy in STRATEGIES:
        yield _gate_fault((*place, "strategy"), f"share by {strategy}", GATE_BY_STRATEGY[strategy])
    for field, owner in ((SLICING_FIELD, TIME_SLICING_STRATEGY), (MPS_FIELD, MPS_STRATEGY)):
        settings = (yield from _object_in_field(sharing, field, place)) if field in fields else None
        if settings is None:
            continue
        if strategy in STRATEGIES and strategy != owner:
            text = f"have {field} beside the strategy {strategy}"
            advice = f"remove {field}, or write strategy: {owner}"
            yield ParameterFault((*place, field), text, advice)
        elif field == SLICING_FIELD:
            yield from _unknown_fields(settings, ("interval",), (*place, field))
            yield from _choice_faults(settings, "interval", TIME_SLICE_INTERVALS, (*place, field))
        else:
            yield from _faults_of_mps(settings, (*place, field))


def _faults_of_mps(settings: Mapping[str, Any], place: Path) -> Iterator[ParameterFault]:
    yield from _unknown_fields(
        settings, (PERCENTAGE_FIELD, MEMORY_FIELD, MEMORY_BY_DEVICE_FIELD), place
    )
    share = settings.get(PERCENTAGE_FIELD)
    if not (share is None or _is_placeholder(share)) and not _is_percentage(share):
        text = f"have {display(f'{PERCENTAGE_FIELD}: {share}')}"
        yield ParameterFault((*place, PERCENTAGE_FIELD), text, "write a whole number from 0 to 100")
    yield from _memory_faults(settings, MEMORY_FIELD, place)
    by_device = yield from _object_in_field(settings, MEMORY_BY_DEVICE_FIELD, place)
    for device in by_device or ():
        yield from _memory_faults(by_device or {}, device, (*place, MEMORY_BY_DEVICE_FIELD))


def _is_percentage(value: Any) -> bool:
    return type(value) in {int, float} and 0 <= value <= 100 and value == int(value)  # noqa: PLR2004


def _memory_faults(
    settings: Mapping[str, Any], field: str, place: Path
) -> Iterator[ParameterFault]:
    value = settings.get(field)
    amount = None if value is None else parse(value)
    is_small = isinstance(amount, Quantity) and amount.value < MIN_MEMORY_BYTES
    if is_small or isinstance(amount, Malformed):
        fault = "less than a mebibyte" if is_small else "which is no quantity"
        text = f"have {display(f'{field}: {value}')}, {fault}"
        yield ParameterFault((*place, field), text, "write an amount of memory, such as 10Gi")


def _object_in_field(
    parent: Mapping[str, Any], field: str, place: Path
) -> Generator[ParameterFault, None, Mapping[str, Any] | None]:
    """The object in `field`; None if there is none, or something else, which is a fault."""
    value = parent.get(field)
    if isinstance(value, Mapping):
        return value
    if value is not None and not _is_placeholder(value):
        text = f"have {display(field)}, which is no object"
        yield ParameterFault(
            (*place, field), text, f"write the fields of {display(field)} below it"
        )
    return None


def _choice_faults(
    parent: Mapping[str, Any],
    field: str,
    choices: tuple[str, ...],
    place: Path,
    *,
    is_required: bool = False,
) -> Iterator[ParameterFault]:
    value = parent.get(field)
    if value is None:
        if is_required:
            text = f"have {place[-1]} without {field}"
            yield ParameterFault(place, text, f"write {field}: {' or '.join(choices)}")
        return
    if value in choices or _is_placeholder(value):
        return
    right = nearest_word(as_text(value), choices)
    advice = f"write {right}" if right else f"write one of {', '.join(choices)}"
    yield ParameterFault((*place, field), f"have {display(f'{field}: {value}')}", advice)


def _unknown_fields(
    parent: Mapping[str, Any], known: tuple[str, ...], place: Path
) -> Iterator[ParameterFault]:
    for field in parent:
        if field in known:
            continue
        right = nearest_word(field, known)
        homes = [home for home, inner in FIELDS_BY_PARENT.items() if field in inner]
        home, is_known = next((h for h in homes if h in known), None), bool(homes)
        advice = f"write {right}" if right else f"move it into {home}" if home else "remove it"
        text = f"have the field {display(field)}, which it does not know"
        yield ParameterFault((*place, field), text, advice, is_certain=bool(right) or is_known)


def _is_placeholder(value: Any) -> bool:
    return isinstance(value, str) and has_placeholder(value)
