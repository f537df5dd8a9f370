"""Read the limits for containers in LimitRanges, with what the API server fills in.

Source: Kubernetes, `pkg/apis/core/v1/defaults.go`, SetDefaults_LimitRangeItem.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects


class ContainerLimits(NamedTuple):
    """A limit of the type Container: amounts by resource.

    `least` and `most` are what a container may have; `limits` and `requests` what it gets if it
    says nothing.
    """

    least: Mapping[str, Any]
    most: Mapping[str, Any]
    limits: Mapping[str, Any]
    requests: Mapping[str, Any]


def container_limits(raw: Mapping[str, Any]) -> Iterator[ContainerLimits]:
    """The limits for containers in the LimitRange `raw`."""
    for _, item in as_objects(as_object(raw.get("spec")).get("limits")):
        if item.get("type") == "Container":
            least, most = as_object(item.get("min")), as_object(item.get("max"))
            limits = {**most, **as_object(item.get("default"))}
            requests = {**least, **limits, **as_object(item.get("defaultRequest"))}
            yield ContainerLimits(least, most, limits, requests)
