"""Which pods no rule can have anything to say about, told at a fraction of the cost of asking.

Most pods of a cluster have nothing to do with GPUs. `is_plain` is coarser than the rules on
purpose: whatever looks remotely like their business is not plain. The tests hold it to that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rules.container import Container
from rules.images import is_cuda_image
from rules.patterns import matches_any
from rules.pod import POD_SPEC, Pod
from rules.profile import Profile
from rules.reading import items

NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
TELLING_KEY = re.compile("gpu|cdi|device", re.IGNORECASE)
TELLING_VARIABLE = re.compile("VISIBLE_DEVICES|NVIDIA|CUDA|GPU|MIG")
# With any of these the pod is placed, or shares the node, in a way that some rule looks at.
TELLING_FIELDS = (
    *("nodeSelector", "affinity", "tolerations", "runtimeClassName", "nodeName"),
    *("resources", "overhead", "resourceClaims"),
)


def is_plain(pod: Pod) -> bool:
    """Whether nothing in `pod` concerns any rule, unless the policy voids every container."""
    spec = pod.spec
    return (
        pod.layout is POD_SPEC
        and not any(field in spec for field in TELLING_FIELDS)
        and not any("hostPath" in volume for _, volume in pod.volumes)
        and not _tells(pod.annotations, pod.profile)
        and not _tells(pod.labels, pod.profile)
        and all(_is_plain(container) for container in pod.containers)
    )


def _tells(keys: Mapping[str, Any], profile: Profile) -> bool:
    wanted = [key for fraction in profile.fractions for key in fraction.annotations]
    return any(TELLING_KEY.search(key) or key in wanted for key in keys)


def _is_plain(container: Container) -> bool:
    variables = container.pod.profile.alternative_variables
    return (
        container.limits.keys() <= NATIVE
        and container.requests.keys() <= NATIVE
        and not container.claims
        and not any(TELLING_VARIABLE.search(n) or matches_any(variables, n) for n in container.env)
        and not any(source.get("prefix") for _, source in items(container.raw.get("envFrom")))
        and not is_cuda_image(container.image)
    )
