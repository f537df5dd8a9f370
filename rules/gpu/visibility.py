"""The GPUs that a container gets through environment variables, without the scheduler.

The profiles list the variables and say what their values mean (`visibleDevices`). The order of
precedence follows the kubelet: the device plugin's variables come first, then `envFrom`, then
`env`; the last one wins. At the end are the edits that take a container's GPUs away, and advice.
"""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from rules.base.json_values import (
    Edit,
    append,
    as_object,
    as_objects,
    as_text,
    display,
    put,
    remove,
)
from rules.base.text_matching import is_found
from rules.base.traits import LEGACY_VARIABLES
from rules.finding import Action, Finding, Fix
from rules.gpu.devices import (
    devices,
    is_device_class,
    request_of,
    requests_gpu,
    uses_device_plugin,
)
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.objects.view import once_per_view
from rules.profile.profile import VisibleDevices

NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
VOID_VALUE = "void"
READABLE_NAME_PATTERN = "[A-Za-z_][A-Za-z0-9_]*"
MAP_NUMBER_PATTERN = "-i?[0-9]+$"
"""The number of a container, at the end of the name of a ConfigMap that a GPU platform makes."""
CUDA_VERSION, NVIDIA_REQUIRE_CUDA = LEGACY_VARIABLES

_MAX_DISPLAYED_CHARACTERS = 60  # characters of a variable's name that a message shows
# The longest value that is read. A list of all devices of a node is far shorter.
_MAX_VALUE_CHARACTERS = 4096
# What the runtimes, which are written in Go, trim (`strings.TrimSpace`). Python's `strip` also
# removes U+001C to U+001F, with which the runtimes read another word.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
_SPACE += "".join(map(chr, range(0x2000, 0x200B)))
# What the kubelet fills in. Without a variable of that name the text stays, and `$$(` is literal.
_FILLED_IN_PATTERN = r"\$\([^)]*\)"
_REFERENCE_KINDS = ("configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef")


class Visibility(enum.Enum):
    """The effect of a visible-devices variable on the container runtime."""

    UNSET = "unset"
    HIDDEN = "hidden"
    DRIVER_ONLY = "driver only"  # libraries and tools, but no device
    GRANTED = "granted"
    REFERENCE = "reference"


def parse_visibility(value: str, known: VisibleDevices) -> Visibility:
    """Return the effect on the container runtime of the variable `known` with the value `text`."""
    if len(value) > _MAX_VALUE_CHARACTERS:
        return Visibility.GRANTED  # no user needs one that long
    if not value and known.empty_grants:
        return Visibility.GRANTED
    words = re.sub(_FILLED_IN_PATTERN, "$(", value).split(",")
    tokens = [token for word in words if (token := word.strip(_SPACE))]
    if not set(known.overrides).isdisjoint(tokens):
        return Visibility.HIDDEN  # whatever the kubelet fills in beside it
    if "$(" in value:
        return Visibility.GRANTED  # it may become any value
    if set(known.hides).issuperset(tokens):
        return Visibility.HIDDEN
    # In some versions `none` wins at any position. gpuward assumes the version that grants more.
    deciding = next((token for token in tokens if token in ("all", known.driver_only)), "")
    is_driver_only = deciding and deciding == known.driver_only
    return Visibility.DRIVER_ONLY if is_driver_only else Visibility.GRANTED


# How runtimes read the alternatives to their variables: no word overrides a device beside it.
ALTERNATIVE_VARIABLE = VisibleDevices(
    "", "", (), hides=(VOID_VALUE, "none"), hiding_value=VOID_VALUE
)


@once_per_view
def visible_variables(container: Container) -> Mapping[str, VisibleDevices]:
    """The visible-devices variables of all makers in the container's own `env`, by name."""
    return container.profile.visible_variables(container.env)


def visibility(container: Container, variable: str = NVIDIA_VISIBLE_DEVICES) -> Visibility:
    """Return the effect of `variable` in the container's own `env`; the last entry wins."""
    if variable not in container.env:
        return Visibility.UNSET
    value = container.env_value(variable)
    if value is None:
        return Visibility.REFERENCE
    return parse_visibility(value, visible_variables(container).get(variable, ALTERNATIVE_VARIABLE))


def certainly_gets_no_gpu(container: Container) -> bool:
    """Return whether the container certainly gets no GPU, because it hides all and requests none.

    A GPU that it requests may be given to it by a volume mount, which comes before the variable.
    """
    return visibility(container) is Visibility.HIDDEN and not requests_gpu(container)


def is_for_requested_gpu(known: VisibleDevices, container: Container) -> bool:
    """Return whether the variable `known` names cards of a vendor whose GPU `container` requests.

    For a container with only a resource claim or a part of a GPU, this is true for NVIDIA's
    variable: the pod does not show the vendor.
    """
    vendors = request_of(container).vendors
    if not vendors:
        return known.name == NVIDIA_VISIBLE_DEVICES and requests_gpu(container)
    return not vendors.isdisjoint(known.vendors)


def may_be_given_by_variable(container: Container) -> bool:
    """Return whether the GPU that `container` requests may be given to it by NVIDIA's variable.

    The variable then has to stay as the device plugin, or the scheduler of a part of a GPU, sets
    it. Cards of other makers do not depend on it.
    """
    nvidia = container.profile.visible_variable(NVIDIA_VISIBLE_DEVICES)
    if nvidia is None or container.is_fraction_target:
        return uses_device_plugin(container)
    return any(
        device.is_requested and device.resource.vendor in nvidia.vendors
        for name, device in devices(container).items()
        if not is_device_class(name)
    )


def matching_prefixes(container: Container, variable: str) -> list[tuple[int, Mapping[str, Any]]]:
    """The entries of `envFrom`, with their indices, whose prefix and some key can form `variable`.

    `variable` may contain one `*`. Of entries with the same prefix only the last is listed. Entries
    without a prefix are left out: they may contain any variable, and the pod does not show which.
    """
    prefixes = container.env_from_by_prefix
    if not prefixes:
        return []
    stem, star, _ = variable.partition("*")
    candidates: Iterable[str] = prefixes
    if not star and len(stem) < len(prefixes):
        candidates = (stem[:length] for length in range(1, len(stem)))
    found = (p for p in candidates if p in prefixes and _can_form(p, variable))
    return sorted((prefixes[prefix] for prefix in found), key=itemgetter(0))


def _can_form(prefix: str, variable: str) -> bool:
    stem, star, _ = variable.partition("*")
    if prefix == variable:
        return False
    return stem.startswith(prefix) or (bool(star) and prefix.startswith(stem))


def is_unset(container: Container, variable: str = NVIDIA_VISIBLE_DEVICES) -> bool:
    """Return whether neither `env` nor a prefix in `envFrom` sets `variable`: the image decides."""
    readable = isinstance(container.raw.get("env"), list | None)
    return readable and variable not in container.env and not matching_prefixes(container, variable)


def looks_like_legacy_image(container: Container) -> bool:
    """Return whether NVIDIA's toolkit takes the image for an old one, because of `env`.

    The toolkit gives such images all GPUs unless that variable says otherwise (`CUDA.IsLegacy`).
    """
    # A reference, or a value that the kubelet fills in, may become any value, or an empty one.
    if container.env_value(CUDA_VERSION) == "" or (
        CUDA_VERSION not in container.env and not matching_prefixes(container, CUDA_VERSION)
    ):
        return False
    required = container.env_value(NVIDIA_REQUIRE_CUDA)
    return not required or "$(" in required


def reference_kind(container: Container, variable: str) -> str:
    """The kind of reference that sets `variable`, such as `configMapKeyRef`."""
    source = as_object(container.raw["env"][container.env[variable]].get("valueFrom"))
    return next((kind for kind in _REFERENCE_KINDS if kind in source), "reference")


def describe_setting(container: Container, variable: str) -> str:
    """Return how `env` sets `variable`: `sets X="all"`, `takes X from a configMapKeyRef`."""
    value = container.env_value(variable)
    if value is None:
        return f"takes {display_variable(variable)} from a {reference_kind(container, variable)}"
    return f"sets {display_variable(variable)}={display(value)}"


def display_variable(variable: str) -> str:
    """The name of a variable for a message; quoted if it is long or has odd characters.

    A tenant may choose the name, and a line break in it would corrupt the message.
    """
    is_readable = re.fullmatch(READABLE_NAME_PATTERN, variable) is not None
    return (
        variable
        if len(variable) <= _MAX_DISPLAYED_CHARACTERS and is_readable
        else display(variable)
    )


def is_platform_reference(pod: Pod, container: Container, variable: str) -> bool:
    """Return whether the GPU platform itself hands out devices by the reference in `variable`.

    There are two such references, and a tenant can forge both:

    - A webhook that the profile names writes a reference to a ConfigMap. The name of the
      ConfigMap begins with the value of the profile's annotation and ends with the number of the
      container.
    - Huawei tells users to refer to the annotation in which its scheduler records the chosen
      devices. It is named after the resource that the container asks for.
    """
    entries = container.env_entries(variable)
    if len(entries) != 1:
        return False  # an earlier entry would decide if the reference does not resolve
    source = as_object(entries[0][1].get("valueFrom"))
    known = container.profile.visible_variable(variable)
    if known is not None and known.from_annotation:
        field = as_text(as_object(source.get("fieldRef")).get("fieldPath"))
        return any(
            device.is_requested and field == f"metadata.annotations['{name}']"
            for name, device in devices(container).items()
        )
    reference = as_object(source.get("configMapKeyRef"))
    name = as_text(reference.get("name"))
    return is_found(MAP_NUMBER_PATTERN, name) and any(
        known.variable == variable
        and reference.get("key") == known.key
        and name.rpartition("-")[0] == pod.annotations.get(known.annotation)
        for known in pod.profile.injected_references
    )


def is_platform_config_map(pod: Pod, container: Container, name: str) -> bool:
    """Return whether the GPU platform gives devices by the ConfigMap `name` in `envFrom`.

    KAI's webhook adds one, whose name is that of the ConfigMap in `is_platform_reference` with
    `-evar` at its end (KAI, `pkg/binder/common/gpusharingconfigmap/config_map.go`). A tenant can
    forge it as well.
    """
    stem = name.removesuffix("-evar")
    is_form = stem != name and is_found(MAP_NUMBER_PATTERN, stem)
    annotations = {reference.annotation for reference in pod.profile.injected_references}
    prefixes = filter(None, (as_text(pod.annotations.get(key)) for key in annotations))
    return container.is_fraction_target and is_form and stem.rpartition("-")[0] in prefixes


def prefix_findings(
    container: Container,
    variable: str,
    *,
    effect: str,
    subject: str = "",
    remedy: str = "",
    within: str = "",
) -> Iterator[Finding]:
    """Yield a finding if a prefix of `container` and some key can form `variable`.

    `variable` may end in `*`. `effect` continues the message, `remedy` the advice; `subject` begins
    the message, if not with the container alone. Only prefixes that begin with `within` count.
    """
    found = matching_prefixes(container, variable)
    for index, source in [e for e in found if as_text(e[1]["prefix"]).startswith(within)][-1:]:
        yield Finding(
            path=(*container.path, "envFrom", index, "prefix"),
            key=f"envFrom.{variable.removesuffix('*')}",
            message=prefix_message(
                subject or container, display(source["prefix"]), variable, effect
            ),
            container=container,
            help=prefix_advice(variable, remedy),
        )


def prefix_message(subject: object, prefix: object, variable: str, effect: str) -> str:
    """Return the message about `prefix`, which a key can complete to `variable`."""
    return (
        f"{subject} takes variables with the prefix {prefix}, which a key can complete to "
        f"{variable.removesuffix('*')}{effect}"
    )


def prefix_advice(variable: str, remedy: str) -> str:
    """Return what to do about a prefix that a key can complete to `variable`."""
    return f"choose a prefix that {variable.removesuffix('*')} does not begin with{remedy}"


def request_of_other_maker(known: VisibleDevices, container: Container) -> str:
    """The first GPU resource that `container` requests, if none is of the maker of `known`.

    Empty if one is, and if the container requests nothing or something of unknown vendor.
    """
    if container.claims or is_for_requested_gpu(known, container):
        return ""
    return request_of(container).first_name


OF_ANOTHER_MAKER = "asks for a card of another maker"
"""The predicate of a message about a container whose device plugin gives no card of NVIDIA."""


def message_about_foreign_variable(
    container: object, setting: object, maker: object, resource: object
) -> str:
    """Return the message about `setting`, such as `sets X="all"`, of a variable of `maker`."""
    return (
        f"{container} asks for {resource} and {setting}, which only the container runtime for "
        f"{maker} cards reads: its image or its settings are for another maker's cards"
    )


def advice_about_foreign_variable(maker: object) -> str:
    """Return what to do about a variable of `maker` beside a request for another maker's GPU."""
    return f"{REMOVE_VARIABLE}, or ask for {maker} cards"


def action_beside_request(
    pod: Pod, known: VisibleDevices, resource: str, container: Container
) -> Action:
    """Return the action for the variable `known` beside `resource` in a container of `pod`.

    On a machine with cards of both makers it grants cards. Some makers' cards are in machines of
    their own, but a new pod that names its node comes to any: the kubelet drops a request for a
    resource that the node does not have.
    """
    if pod.spec.get("nodeName") and not pod.exists:
        return Action.DENY
    profile = container.profile
    requested = profile.resource(resource)
    is_apart = requested is not None and requested.exclusive
    return Action.WARN if is_apart or profile.is_exclusive(known.vendors) else Action.DENY


def remove_edits(container: Container, variable: str) -> tuple[Edit, ...]:
    """Edits that remove every entry of `variable`."""
    indices = [index for index, _ in container.env_entries(variable)]
    return tuple(remove(container.env_entry_path(index)) for index in indices)


def hiding_value(container: Container, variable: str) -> str | None:
    """The value of `variable` that hides every device; None if its maker names none."""
    return (container.profile.visible_variable(variable) or ALTERNATIVE_VARIABLE).hiding_value


def hide_edits(container: Container, variable: str = NVIDIA_VISIBLE_DEVICES) -> tuple[Edit, ...]:
    """Edits that leave exactly one entry of `variable`, with a value that hides every device.

    Without such a value they remove the variable. No edits if `env` is not a list.
    """
    if not isinstance(container.raw.get("env"), list | None):
        return ()
    value = hiding_value(container, variable)
    if value is None:
        return remove_edits(container, variable)
    entries = container.env_entries(variable)
    entry = {"name": variable, "value": value}
    if not entries:
        # At the end, so that a later merge by name keeps the order of the user's own entries.
        return (append((*container.path, "env"), entry),)
    first, *rest = [index for index, _ in entries]
    hidden = value if container.is_in_variable_map(first) else entry
    kept = put(container.env_entry_path(first), hidden)
    return (kept, *(remove(container.env_entry_path(index)) for index in rest))


def hide_fix(
    container: Container, variable: str = NVIDIA_VISIBLE_DEVICES, *, safe: bool = False
) -> Fix:
    """The fix that makes `variable` hide every device."""
    value = hiding_value(container, variable)
    name = display_variable(variable)
    title = f"remove {name}" if value is None else f"set {name}={value}"
    return Fix(title, hide_edits(container, variable), safe=safe)


def advice_to_hide(advice: str, share: str) -> str:
    """Return `advice` to hide all GPUs, with what to do first if `share` may give the pod a part.

    `share` is an annotation, or empty.
    """
    if not share:
        return advice
    system = f"the system that gives it a part of a GPU by the annotation {share}"
    return f"choose the profile of {system}; if the cluster has none, {advice}"


def visibility_fix(pod: Pod, container: Container, variable: str, known: VisibleDevices) -> Fix:
    """The fix for a variable by which a container gets, or may get, devices of its own choice.

    A device plugin writes the variable itself, so it is removed. Beside a resource claim it must
    hide everything: the claim does not need it, and the image may set it to `all`.
    """
    if not requests_gpu(container):
        return hide_fix(container, variable)
    is_requested = is_for_requested_gpu(known, container)
    if not uses_device_plugin(container):
        return hide_fix(container, variable, safe=is_requested and pod.is_final)
    edits = remove_edits(container, variable)
    safe = is_requested and not _is_referred_to(container, variable)
    return Fix(f"remove {display_variable(variable)}", edits, safe=safe)


def _is_referred_to(container: Container, variable: str) -> bool:
    """Return whether another variable, the command or an argument refers to `variable`.

    Without the variable the reference stays there as text.
    """
    raw, reference = container.raw, f"$({variable})"
    texts = [entry.get("value") for _, entry in as_objects(raw.get("env"))]
    for words in (raw.get("command"), raw.get("args")):
        texts += words if isinstance(words, list) else ()
    return any(isinstance(text, str) and reference in text for text in texts)


def advice_beside_request(container: Container, variable: str) -> str:
    """Return what to do about `variable` in a container that requests a GPU."""
    if uses_device_plugin(container):
        return f"{REMOVE_VARIABLE}{THE_PLUGIN_SETS_IT}"
    value = hiding_value(container, variable)
    what = REMOVE_VARIABLE if value is None else set_variable_advice(value)
    return f"{what}{CLAIMS_IGNORE_IT}"


def set_variable_advice(value: object) -> str:
    """Return the advice to set the variable to `value`."""
    return f"set the variable to {value}"


REMOVE_VARIABLE = "remove the variable"
THE_PLUGIN_SETS_IT = ": the device plugin sets it"
CLAIMS_IGNORE_IT = ": the devices of a claim do not depend on it"

REQUEST_IN_LIMITS_ADVICE = "ask for the GPU in resources.limits (such as nvidia.com/gpu: 1)"
"""Advice for messages that first say what to remove."""
IN_EXEC = (
    "an ephemeral container cannot ask for a GPU; use `kubectl exec` in the container that has one"
)
NODE_DEBUGGER_ADVICE = (
    "`kubectl debug node/` shows the whole node: choose an image without CUDA, and use the node's "
    "own programs by `chroot /host`"
)
# What `kubectl debug node/` writes into its pods (kubernetes/kubectl pkg/cmd/debug/debug.go).
DEBUGGER_LABEL = ("app.kubernetes.io/managed-by", "kubectl-debug")


def remove_and_request_advice(
    container: Container, removal: str, request: str = REQUEST_IN_LIMITS_ADVICE, otherwise: str = ""
) -> str:
    """`removal`, such as `remove the mount`, and how `container` gets a GPU instead.

    `otherwise` is another way to remove the fault, such as `, or set the variable to void`.
    Kubernetes forbids `resources` in ephemeral containers.
    """
    if container.role == "ephemeral":
        return f"{removal}{otherwise}: {IN_EXEC}"
    return f"{removal} and {request}{otherwise}"


def is_node_debugger(pod: Pod) -> bool:
    """Return whether the pod says that `kubectl debug node/` made it. Any user can write that."""
    key, value = DEBUGGER_LABEL
    return pod.labels.get(key) == value
