"""Where a kind of workload keeps what a pod spec has."""

from __future__ import annotations

from typing import NamedTuple

from rules.container import Role


class Layout(NamedTuple):
    """Where a kind of workload keeps what a pod spec has.

    `lists` are the paths of the lists of containers and their roles; `singles` are fields
    that hold one container. With `itself` the spec is at once the pod and its main
    container. `resources` is the container's field of limits and requests; `gpu_field`, if
    there is one, holds a resource's name and quantity instead. With `bare` annotations and
    labels stand in the spec.
    """

    lists: tuple[tuple[tuple[str, ...], Role], ...] = (
        (("initContainers",), "init"),
        (("containers",), "app"),
        (("ephemeralContainers",), "ephemeral"),
    )
    singles: tuple[str, ...] = ()
    itself: bool = False
    bare: bool = False
    resources: str = "resources"
    gpu_field: str = ""


POD_SPEC = Layout()
# The fields of an ordinary pod spec that hold containers.
CONTAINER_LISTS = tuple(path[0] for path, _ in POD_SPEC.lists)
