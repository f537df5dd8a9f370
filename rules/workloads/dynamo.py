"""The pods of Dynamo's services, of which the first version of its API has parts in several fields.

Source: ai-dynamo/dynamo deploy/operator/api/v1alpha1, `DynamoComponentDeploymentSharedSpec` and
`ResourceItem`
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import Path, as_object, as_objects, as_text

POD_FIELD = "extraPodSpec"
MAIN_CONTAINER_FIELD = "mainContainer"
_METADATA_FIELD = "extraPodMetadata"
_DEFAULT_RESOURCE = "nvidia.com/gpu"


def pod_of_service(service: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of the pod that the operator makes of a service, as far as the manifest says it.

    The main container keeps its own fields; it also has the variables of the service, after its
    own, and what the service asks for, under the names of Kubernetes.
    """
    spec = as_object(service.get(POD_FIELD))
    main = as_object(spec.get(MAIN_CONTAINER_FIELD))
    resources = as_object(main.get("resources")) or _resources(as_object(service.get("resources")))
    own = main.get("env") if isinstance(main.get("env"), list) else []
    envs = [entry for _, entry in as_objects(service.get("envs"))]
    made: dict[str, Any] = {"name": "main", **main}
    if resources:
        made["resources"] = resources
    if envs:
        made["env"] = [*(own or ()), *envs]
    return {**spec, MAIN_CONTAINER_FIELD: made, "metadata": as_object(service.get(_METADATA_FIELD))}


def _resources(stated: Mapping[str, Any]) -> dict[str, Any]:
    """`resources` of a service, as a container has them."""
    found: dict[str, Any] = {
        field: _amounts(as_object(stated.get(field)))
        for field in ("limits", "requests")
        if field in stated
    }
    if "claims" in stated:
        found["claims"] = stated["claims"]
    return found


def _amounts(item: Mapping[str, Any]) -> dict[str, Any]:
    amounts: dict[str, Any] = {name: item[name] for name in ("cpu", "memory") if name in item}
    if item.get("gpu") is not None:
        amounts[as_text(item.get("gpuType")) or _DEFAULT_RESOURCE] = item["gpu"]
    return {**amounts, **as_object(item.get("custom"))}


def path_in_service(service: Mapping[str, Any], path: Path) -> Path:
    """Return the path in a service of the field at `path` of the pod's spec made of it.

    It is the field itself, or where it would stand, directly below one that there is.
    """
    main = as_object(as_object(service.get(POD_FIELD)).get(MAIN_CONTAINER_FIELD))
    place: Path = (POD_FIELD, *path)
    match path:
        case ("metadata", *rest):
            place = (_METADATA_FIELD, *rest)
        case ("mainContainer", "env", int(index), *rest):
            own = main.get("env")
            listed = [number for number, _ in as_objects(service.get("envs"))]
            beyond = index - (len(own) if isinstance(own, list) else 0)
            if 0 <= beyond < len(listed):
                place = ("envs", listed[beyond], *rest)
        case ("mainContainer", "resources", *rest) if not main.get("resources"):
            place = ("resources", *_amount_path_in_service(service, rest))
    return _existing_part_of_path(service, place)


def _amount_path_in_service(service: Mapping[str, Any], path: list[str | int]) -> Path:
    """The path of an amount below `resources` of a service."""
    if len(path) < 2:  # noqa: PLR2004  # limits or requests, and the name
        return tuple(path)
    field, name = str(path[0]), path[1]
    item = as_object(as_object(service.get("resources")).get(field))
    if name in item:
        return field, name
    if name == (as_text(item.get("gpuType")) or _DEFAULT_RESOURCE):
        return field, "gpu"
    return field, "custom", name


def _existing_part_of_path(service: Mapping[str, Any], place: Path) -> Path:
    found: Any = service
    for depth, step in enumerate(place):
        try:
            found = found[step]
        except (LookupError, TypeError):
            return place[: depth + 1]
    return place
