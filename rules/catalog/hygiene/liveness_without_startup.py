"""A model server may be killed while it loads its model.

What it does
------------
Finds model servers that request a GPU, with a `livenessProbe`, without a `startupProbe`, and with
less than five minutes until the kubelet restarts a container that does not answer: by
`initialDelaySeconds`, `periodSeconds` and `failureThreshold` of the liveness probe. It knows vLLM,
SGLang, Text Generation Inference, TensorRT-LLM and LMDeploy by their commands, and the images
`vllm-openai` and `text-generation-inference` also without one.

Why it matters
--------------
Such a server answers only when it has loaded its model, which takes minutes if it is large or is
downloaded first. A container that is killed before begins anew, holds its GPU all the time, and may
never become ready. With a startup probe the kubelet waits with the liveness probe until the server
has answered once.

References
----------
- https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/
- https://docs.vllm.ai/en/stable/deployment/k8s.html
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_object
from rules.base.traits import GPU_RESOURCE
from rules.gpu.commands.launchers import started_program
from rules.gpu.commands.of_containers import commands_of
from rules.gpu.devices import requests_gpu
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

_ENOUGH_SECONDS = 300  # seconds
# https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/
_PROBE_DEFAULTS = {"initialDelaySeconds": 0, "periodSeconds": 10, "failureThreshold": 3}


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each model server whose liveness probe gives it little time to load a model."""
    for container, command in commands_of(c for c in pod.containers if _may_be_killed(c)):
        seconds = _seconds_to_restart(as_object(container.raw.get("livenessProbe")))
        program = started_program(container, command)
        if program is None or not program.is_server or seconds >= _ENOUGH_SECONDS:
            continue
        yield Finding(
            path=(*container.path, "livenessProbe"),
            key="livenessProbe",
            message=f"the kubelet restarts {container} if {program.name} does not answer "
            f"{_deadline_words(seconds)}, also while it loads its model",
            container=container,
            help="add a startupProbe whose periodSeconds times failureThreshold is the longest "
            "time that it takes to load",
        )


def _may_be_killed(container: Container) -> bool:
    has_probe = bool(container.raw.get("livenessProbe")) and not container.raw.get("startupProbe")
    return has_probe and container.role == "app" and requests_gpu(container)


def _seconds_to_restart(probe: Mapping[str, Any]) -> int:
    """After how many seconds the kubelet restarts a container that never answers.

    The first probe comes after the delay, so that there is one period less than there are probes.
    """
    values = {}
    for field, default in _PROBE_DEFAULTS.items():
        value = probe.get(field)
        if value is not None and (type(value) is not int or value < 0):
            return _ENOUGH_SECONDS  # a placeholder, or an object that the API server refuses
        values[field] = value or default
    periods = values["failureThreshold"] - 1
    return values["initialDelaySeconds"] + values["periodSeconds"] * periods


def _deadline_words(seconds: int) -> str:
    if not seconds:
        return "the first probe"
    return f"within {seconds} second{'s' if seconds > 1 else ''}"


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(GPU_RESOURCE,))
