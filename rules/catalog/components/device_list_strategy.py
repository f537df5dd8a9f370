"""NVIDIA's toolkit ignores the variable by which its device plugin hands out GPUs.

What it does
------------
Checks a `ClusterPolicy` of NVIDIA's operator, also one that a chart renders, whose toolkit has
`ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED` set to `false`. Finds a device plugin with
the strategy `envvar` alone, or with CDI switched off and no strategy, which means the same; and the
strategy `volume-mounts` without `ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS` set to `true`. If
it names neither a strategy nor CDI, the default of the operator's release decides, and it is a
warning.

Why it matters
--------------
The variable set to `false` closes the way by which a container names its own GPUs. But the device
plugin hands out GPUs by the same variable unless it is told otherwise. Pods that request a GPU then
start without one: `nvidia-smi` finds no device, and nothing says why.

References
----------
- https://github.com/NVIDIA/gpu-operator/issues/372
- https://github.com/NVIDIA/aicr/issues/1354
- NVIDIA/k8s-device-plugin, `README.md` (DEVICE_LIST_STRATEGY)
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_object, as_objects, as_text, display
from rules.base.traits import GPU_OPERATOR
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

ACCEPT_ENVVAR_VARIABLE = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
ACCEPT_MOUNTS_VARIABLE = "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS"
STRATEGY_VARIABLE = "DEVICE_LIST_STRATEGY"
_FALSE_WORDS, _TRUE_WORDS = {"false", "0", "f"}, {"true", "1", "t"}
_MOUNTS_STRATEGY = "volume-mounts"
_ADVICE = (
    f"set {STRATEGY_VARIABLE} of devicePlugin to cdi-cri, "
    f"or to {_MOUNTS_STRATEGY} with {ACCEPT_MOUNTS_VARIABLE}=true"
)


def check(subject: KubernetesObject, _context: Context) -> Findings:
    """Yield the variable of the toolkit if the device plugin needs what it forbids."""
    spec = as_object(subject.raw.get("spec"))
    toolkit = _variables_with_index(spec, "toolkit")
    index, accepted = toolkit.get(ACCEPT_ENVVAR_VARIABLE, (0, ""))
    if accepted.lower() not in _FALSE_WORDS:
        return
    _, strategy = _variables_with_index(spec, "devicePlugin").get(STRATEGY_VARIABLE, (0, ""))
    cdi = as_object(spec.get("cdi")).get("enabled")
    message, action = _fault(strategy, cdi, toolkit.get(ACCEPT_MOUNTS_VARIABLE, (0, ""))[1])
    if message:
        yield Finding(
            path=(*subject.path, "spec", "toolkit", "env", index, "value"),
            key=ACCEPT_ENVVAR_VARIABLE,
            message=f"the toolkit ignores NVIDIA_VISIBLE_DEVICES, {message}",
            help=_ADVICE,
            action=action,
        )


def _fault(strategy: str, cdi: object, mounts: str) -> tuple[str, Action]:
    """Return the fault, and how sure it is; empty if there is none."""
    names = [name.strip() for name in strategy.split(",")] if strategy else []
    if not names:
        if cdi is False:
            why = "and without CDI the device plugin hands out GPUs by this variable"
            return f"{why}: pods get none", Action.DENY
        why = "and whether the device plugin hands out GPUs by it is the release's default"
        return ("" if cdi is True else why), Action.WARN
    if all(name == "envvar" for name in names):
        why = f"and the device plugin has the strategy {display(strategy)}, which is this variable"
        return f"{why}: pods get no GPU", Action.DENY
    others = [name for name in names if name not in {"envvar", _MOUNTS_STRATEGY}]
    if not others and mounts.lower() not in _TRUE_WORDS:
        return f"and without {ACCEPT_MOUNTS_VARIABLE}=true mounts too: pods get no GPU", Action.DENY
    return "", Action.OFF


def _variables_with_index(spec: Mapping[str, Any], part: str) -> dict[str, tuple[int, str]]:
    """The variables of a part of the operator, each with its index."""
    listed = as_objects(as_object(spec.get(part)).get("env"))
    return {as_text(v.get("name")): (index, as_text(v.get("value"))) for index, v in listed}


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_OPERATOR,))
