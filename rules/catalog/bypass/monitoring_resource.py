"""A container asks for the resource that shows it every card of its node.

What it does
------------
Finds `gpu.intel.com/monitoring`, `gpu.intel.com/i915_monitoring` and `gpu.intel.com/xe_monitoring`
in the limits or requests of a container. Not reported in pods that a DaemonSet creates: exporters
of metrics run in DaemonSets, and Intel made the resource for them.

Why it matters
--------------
Intel's device plugin offers the resource if an administrator enables it. A container that asks for
it gets the device files of all Intel GPUs of the node, also of those in use, and no scheduler
counts them.

References
----------
- intel/intel-device-plugins-for-kubernetes, `cmd/gpu_plugin/monitoring.md`
"""

from rules.base.quantity import Quantity, parse
from rules.base.traits import OTHER_GPU_RESOURCE, UNKNOWN_RESOURCE
from rules.gpu.components import is_made_by_daemon_set
from rules.in_process.expression import (
    OBJECT,
    Expression,
    all_of,
    any_of,
    entry,
    not_,
    optional,
    text,
)
from rules.in_process.statement import CONTAINER, Statement
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

DOMAIN = "gpu.intel.com/"
RESOURCES = tuple(f"{DOMAIN}{name}" for name in ("monitoring", "i915_monitoring", "xe_monitoring"))
ADVICE = f"ask for a GPU ({DOMAIN}i915 or {DOMAIN}xe), or run it in a DaemonSet"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each such resource of a pod that no DaemonSet creates."""
    if is_made_by_daemon_set(pod, context):
        return
    for container in pod.containers:
        for name in RESOURCES:
            if field := _requesting_field(container, name):
                yield Finding(
                    path=(*container.resources_path, field, name),
                    key=f"monitoring.{name}",
                    message=_message(container, name),
                    container=container,
                    help=ADVICE,
                )


def _message(container: object, name: str) -> str:
    return (
        f"{container} asks for {name}, which shows it every Intel GPU of its node: "
        "the scheduler counts none of them for it"
    )


def _requesting_field(container: Container, name: str) -> str:
    """The field in which `container` asks for `name`; empty if it does not."""
    for field, amounts in (("limits", container.limits), ("requests", container.requests)):
        if name in amounts:
            amount = parse(amounts[name])
            if not isinstance(amount, Quantity) or amount.nano > 0:
                return field
    return ""


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    return tuple(
        Statement(
            "container",
            where=all_of(not_(OBJECT.isDaemon), _asks_for(name)),
            message=text(_message(CONTAINER.text, name)),
            help=ADVICE,
        )
        for name in RESOURCES
    )


def _asks_for(name: str) -> Expression:
    """Return whether the container has `_requesting_field`."""
    fields = ("resources.limits", "resources.requests")
    amounts = (entry(optional(CONTAINER.raw, field), name, "0") for field in fields)
    return any_of(*(amount != "0" for amount in amounts))


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    needs=(UNKNOWN_RESOURCE | OTHER_GPU_RESOURCE,),
    needs_resources=True,
)
