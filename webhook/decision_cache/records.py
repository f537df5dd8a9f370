"""The fields of a review of a new pod that decisions depend on.

msgspec decodes these and skips all others. A review that does not have these types is decided
without the cache. `Raw` is JSON text as it was sent.
"""

# ruff: noqa: N815  # fields have the names that Kubernetes' API gives them

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

AnyJson: TypeAlias = Raw | UnsetType
Text: TypeAlias = str | UnsetType
Texts: TypeAlias = dict[str, str] | UnsetType


class Variable(Struct, omit_defaults=True, gc=False):
    """An entry of a container's `env`."""

    name: str
    value: Text = UNSET
    valueFrom: AnyJson = UNSET


class VolumeMount(Struct, omit_defaults=True, gc=False):
    """A mount of a volume in a container."""

    name: Text = UNSET
    mountPath: Text = UNSET
    readOnly: bool | UnsetType = UNSET
    subPath: Text = UNSET
    subPathExpr: Text = UNSET


class Container(Struct, omit_defaults=True):
    """A container of any role."""

    name: str
    image: Text = UNSET
    command: AnyJson = UNSET
    args: AnyJson = UNSET
    env: list[Variable] | UnsetType = UNSET
    envFrom: AnyJson = UNSET
    lifecycle: AnyJson = UNSET
    livenessProbe: AnyJson = UNSET
    readinessProbe: AnyJson = UNSET
    # Where users write resources by mistake. The API server drops these three.
    limits: AnyJson = UNSET
    requests: AnyJson = UNSET
    resource: AnyJson = UNSET
    resources: AnyJson = UNSET
    restartPolicy: AnyJson = UNSET
    securityContext: AnyJson = UNSET
    startupProbe: AnyJson = UNSET
    volumeMounts: list[VolumeMount] | UnsetType = UNSET


class Volume(Struct, omit_defaults=True, gc=False):
    """A volume of a pod."""

    name: Text = UNSET
    emptyDir: AnyJson = UNSET
    hostPath: AnyJson = UNSET


class PodSpec(Struct, omit_defaults=True):
    """The spec of a pod."""

    containers: list[Container]
    initContainers: list[Container] | UnsetType = UNSET
    ephemeralContainers: list[Container] | UnsetType = UNSET
    volumes: list[Volume] | UnsetType = UNSET
    affinity: AnyJson = UNSET
    hostIPC: AnyJson = UNSET
    hostNetwork: AnyJson = UNSET
    hostPID: AnyJson = UNSET
    nodeName: AnyJson = UNSET
    nodeSelector: AnyJson = UNSET
    overhead: AnyJson = UNSET
    priorityClassName: AnyJson = UNSET
    resourceClaims: AnyJson = UNSET
    resources: AnyJson = UNSET
    runtimeClassName: AnyJson = UNSET
    schedulerName: AnyJson = UNSET
    schedulingGates: AnyJson = UNSET
    securityContext: AnyJson = UNSET
    serviceAccount: AnyJson = UNSET
    serviceAccountName: AnyJson = UNSET
    tolerations: AnyJson = UNSET
    topologySpreadConstraints: AnyJson = UNSET


class OwnerReference(Struct, omit_defaults=True, gc=False):
    """An owner of a pod. Its name is only for the log."""

    kind: Text = UNSET
    name: Text = UNSET
    controller: bool | UnsetType = UNSET


class FieldManager(Struct, gc=False):
    """Who wrote fields of a pod, and how."""

    operation: str = ""


class Metadata(Struct, gc=False):
    """The metadata of a pod, as it was sent."""

    name: Text = UNSET
    generateName: Text = UNSET
    namespace: Text = UNSET
    annotations: AnyJson = UNSET
    labels: AnyJson = UNSET
    ownerReferences: AnyJson = UNSET
    managedFields: list[FieldManager] | UnsetType = UNSET


class ReadMetadata(Struct, omit_defaults=True):
    """The fields of a pod's metadata on which a decision depends."""

    name: Text = UNSET
    generateName: Text = UNSET
    namespace: Text = UNSET
    annotations: Texts = UNSET
    labels: Texts = UNSET
    ownerReferences: list[OwnerReference] | UnsetType = UNSET


class Pod(Struct, omit_defaults=True):
    """A pod."""

    apiVersion: Literal["v1"]
    kind: Literal["Pod"]
    metadata: Metadata
    spec: Raw
    """A PodSpec."""
    items: AnyJson = UNSET
    """What makes a list of an object."""


class PodKind(Struct, gc=False):
    """The kind of a request about a pod."""

    kind: Literal["Pod"]
    group: Literal[""] = ""


class PodResource(Struct, gc=False):
    """The resource of a request about a pod."""

    resource: Literal["pods"]
    group: Literal[""] = ""


class UserInfo(Struct, frozen=True, gc=False):
    """Who sends a request."""

    username: str = ""


class Request(Struct):
    """A request to create a pod."""

    uid: str
    kind: PodKind
    resource: PodResource
    operation: Literal["CREATE"]
    object: Pod
    subResource: Literal[""] = ""
    name: str = ""
    namespace: str = ""
    userInfo: UserInfo = UserInfo()
    dryRun: bool = False
    oldObject: None = None


class Review(Struct):
    """An AdmissionReview about the creation of a pod."""

    apiVersion: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: Request


class Head(Struct):
    """What a decision about a new pod depends on, besides its spec, the policy and the day.

    `path` is the URL path, which says the webhook and the mode.
    """

    path: str
    namespace: str
    user: str
    metadata: ReadMetadata
