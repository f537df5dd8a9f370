"""The fields of a kustomization by which it makes or changes objects in ways that concern GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_access import as_object, as_objects, as_text
from rules.base.traits import KEY_WORDS
from rules.gpu.images import is_cuda_image

# What these make or change cannot be known without rendering. Fields that are not here, such as
# `namePrefix`, `namespace`, `replicas` and `configMapGenerator`, change nothing that gives a GPU.
_ALWAYS = (
    "commonAnnotations",
    "components",
    "configurations",
    "generators",
    "helmCharts",
    "helmChartInflationGenerator",
    "replacements",
    "transformers",
    "vars",
)


def fields_about_gpus(kustomization: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of `kustomization` that may give a pod a GPU, or take one away."""
    return tuple(sorted(_fields(kustomization)))


def _fields(raw: Mapping[str, Any]) -> Iterator[str]:
    yield from (field for field in _ALWAYS if raw.get(field))
    if _has_gpu_key(raw.get("commonLabels")):
        yield "commonLabels"
    # With `fields`, labels become entries of any map, such as a nodeSelector or limits.
    labels = [entry for _, entry in as_objects(raw.get("labels"))]
    if any(entry.get("fields") or _has_gpu_key(entry.get("pairs")) for entry in labels):
        yield "labels"
    for field in ("images", "imageTags"):
        if any(_is_about_gpus(entry) for _, entry in as_objects(raw.get(field))):
            yield field


def _has_gpu_key(labels: Any) -> bool:
    return any(word in str(key).lower() for key in as_object(labels) for word in KEY_WORDS)


def _is_about_gpus(image: Mapping[str, Any]) -> bool:
    """Whether `image` brings another image, or a tag that makes its image one with CUDA."""
    name, tag = as_text(image.get("name")), as_text(image.get("newTag"))
    suffix = as_text(image.get("tagSuffix"))
    return bool(as_text(image.get("newName"))) or is_cuda_image(f"{name}:{tag}{suffix}")
