"""What rules evaluate in a manifest."""

from typing import NamedTuple, TypeAlias

from rules.base.json_values import Path
from rules.objects.kubernetes_object import KubernetesObject
from rules.objects.kubernetes_objects import DeviceClaim
from rules.objects.object_ref import ObjectRef
from rules.objects.pod import Pod
from rules.objects.quota import Quota


class MalformedField(NamedTuple):
    """A field of what looks like a pod that has the wrong type; rules read it as empty."""

    object: ObjectRef
    path: Path
    why: str


Subject: TypeAlias = Pod | Quota | DeviceClaim | KubernetesObject
SearchResult: TypeAlias = Subject | MalformedField
