"""What a view of a pod or a container still knows after an edit of one field.

A *fact* is what a view has computed from its data: a cached property, or a value that another
module stores in the view. A fact that is not listed here may depend on any field.
"""

from __future__ import annotations

from collections.abc import Collection

from rules.objects.pod_layout import CONTAINER_LISTS

# What a view is given when it is made. An edit changes none of it.
GIVEN_TO_CONTAINER = frozenset(
    {
        *("raw", "path", "role", "name", "profile", "is_fraction_target"),
        *("_gpu_field", "_own_resources_field"),
    }
)
GIVEN_TO_POD = frozenset(
    {
        *("object", "profile", "spec", "path", "metadata", "metadata_path", "stable_path"),
        *("layout", "exists", "is_partial", "is_component", "has_status", "steps"),
        *("owner_labels", "results_by_rule"),
    }
)
# The facts that depend on each field.
_BY_FIELD_OF_CONTAINER = {
    "image": ("image", "other_traits"),
    "envFrom": ("prefixes", "other_traits"),
    "env": ("env", "_entries_by_name", "variable_traits", "visible_variables"),
    "resources": (
        *("resources", "limits", "requests", "claims"),
        *("devices", "request", "resource_traits"),
    ),
    "securityContext": ("security_context", "added_capabilities", "other_traits"),
    "volumeMounts": ("mounts",),
}
_BY_FIELD_OF_POD = {
    "volumes": ("volumes",),
    "tolerations": ("tolerations",),
    "nodeSelector": ("node_selector",),
}
_BY_CONTAINERS = ("requests_gpu", "requested_resources", "container_traits")
_BY_METADATA = ("annotations", "labels", "is_daemon", "metadata_traits")

_CONTAINER = GIVEN_TO_CONTAINER.union(*_BY_FIELD_OF_CONTAINER.values())
_POD = GIVEN_TO_POD.union(("containers", *_BY_CONTAINERS, *_BY_METADATA))
_POD = _POD.union(*_BY_FIELD_OF_POD.values())
_KEPT_BY_CONTAINER = {f: _CONTAINER.difference(own) for f, own in _BY_FIELD_OF_CONTAINER.items()}
_KEPT_BY_POD = {
    **{field: _POD.difference(own) for field, own in _BY_FIELD_OF_POD.items()},
    # The names of containers and the scheduler decide which container gets a part of a GPU.
    **dict.fromkeys((*CONTAINER_LISTS, "schedulerName"), GIVEN_TO_POD),
}
KEPT_BESIDE_CONTAINERS = _POD.union(("spec_traits",)).difference(_BY_CONTAINERS)
"""What a pod keeps if a field of one of its containers is edited."""


def kept_by_container(field: str | int) -> frozenset[str]:
    """The attributes of a container that stay if its `field` is edited."""
    return _KEPT_BY_CONTAINER.get(str(field), _CONTAINER)


def kept_by_pod(field: str | int) -> frozenset[str]:
    """The attributes of a pod that stay if `field` of its spec is edited."""
    return _KEPT_BY_POD.get(str(field), _POD)


def forget_facts(view: object, kept: Collection[str]) -> None:
    """Remove every attribute of `view` that is not `kept`; the view computes it anew when read."""
    attributes = view.__dict__
    for name in attributes.keys() - kept:
        del attributes[name]
