"""With how many GPUs a custom resource says that a pod works, in fields beside the pod."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rules.base.json_values import Path, as_object, as_text
from rules.objects.container import Container
from rules.objects.pod import Pod

_RAY_GROUP = "ray.io"
_KSERVE_GROUP = "serving.kserve.io"
_MAX_DIGITS = 6  # of a number of GPUs
# KServe gives its arguments to the container of this name.
_KSERVE_CONTAINER = "main"


class StatedSize(NamedTuple):
    """How many GPUs of `container` are used: from `min_gpus` to `max_gpus`.

    `text` is the field at `path` with its value, and `framework` the one that reads it.
    """

    framework: str
    text: str
    path: Path
    container: Container
    min_gpus: int
    max_gpus: int


def stated_size(pod: Pod) -> StatedSize | None:
    """What the object around `pod` says; None if it says nothing that is certain."""
    place = pod.path[: -2 if pod.path[-1:] == ("spec",) else -1]
    if pod.object.group == _RAY_GROUP:
        return _ray_size(pod, place)
    if pod.object.group == _KSERVE_GROUP and pod.object.kind.startswith("LLMInferenceService"):
        return _kserve_size(pod, place)
    return None


def _ray_size(pod: Pod, place: Path) -> StatedSize | None:
    value = as_object(pod.holder.get("rayStartParams")).get("num-gpus")
    gpus = _positive_number(value)
    containers = [each for each in pod.containers if each.role == "app"]
    if not gpus or not containers:  # a head with `num-gpus: "0"` takes no work
        return None
    path = (*place, "rayStartParams", "num-gpus")
    return StatedSize("Ray", f"num-gpus: {gpus}", path, containers[0], gpus, gpus)


def _kserve_size(pod: Pod, place: Path) -> StatedSize | None:
    parallelism = as_object(pod.holder.get("parallelism"))
    tensor = _positive_number(parallelism.get("tensor"))
    main = next((each for each in pod.containers if each.name == _KSERVE_CONTAINER), None)
    if not tensor or main is None or "worker" in pod.holder:  # several pods work together
        return None
    most = tensor * _parallel_factor(parallelism, "pipeline")
    most *= max(_parallel_factor(parallelism, "data"), _parallel_factor(parallelism, "dataLocal"))
    path = (*place, "parallelism", "tensor")
    return StatedSize("vLLM", f"parallelism.tensor: {tensor}", path, main, tensor, most)


def _parallel_factor(parallelism: Mapping[str, Any], field: str) -> int:
    return _positive_number(parallelism.get(field)) or 1


def _positive_number(value: Any) -> int:
    """The number that `value` is, also as a text; 0 for everything else."""
    if type(value) is int:
        return value if 0 < value < 10**_MAX_DIGITS else 0
    text = as_text(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0
