"""Where a kind of workload keeps what a pod spec has."""

from typing import Literal, NamedTuple

Role = Literal["init", "app", "ephemeral"]
"""What a container is for."""


class PodLayout(NamedTuple):
    """Where a kind of workload keeps what a pod spec has. The defaults describe a pod spec.

    - `container_lists`: the paths of the lists of containers, from the spec, with the role of the
      containers in each.
    - `single_containers`: fields that hold one container.
    - `is_container`: the spec is both the pod and its main container.
    - `metadata_in_spec`: annotations and labels are fields of the spec.
    - `resources_field`: the container's field of limits and requests.
    - `resources_overlay`: the resources are laid over those of another object, such as a training
      runtime, so a limit that is missing here may be there.
    - `is_whole`: nothing else adds to the pod. It is not, if a runtime or an operator does: what is
      missing here may be there.
    - `gpu_field`: the field, if any, that holds a GPU resource's name and quantity instead.
    """

    container_lists: tuple[tuple[tuple[str, ...], Role], ...] = (
        (("initContainers",), "init"),
        (("containers",), "app"),
        (("ephemeralContainers",), "ephemeral"),
    )
    single_containers: tuple[str, ...] = ()
    is_container: bool = False
    metadata_in_spec: bool = False
    resources_field: str = "resources"
    resources_overlay: bool = False
    is_whole: bool = True
    gpu_field: str = ""


POD_SPEC = PodLayout()
CONTAINER_LISTS = tuple(path[0] for path, _ in POD_SPEC.container_lists)
"""The fields of an ordinary pod spec that hold containers."""
