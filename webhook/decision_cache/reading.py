"""Read a review of a new pod: what tells the pods of one template apart, and the rest.

The rest is all that a decision depends on. So pods with the same rest get the same decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from msgspec import UNSET, MsgspecError
from msgspec.json import Decoder, Encoder

from rules.profile.profile import Profile
from rules.traits.names import read_keys, read_variables
from webhook.admission.codec import CODEC
from webhook.admission.fixed_annotation import FIXED_ANNOTATION
from webhook.admission.response import Envelope
from webhook.admission.review import AdmissionReview
from webhook.admission.second_apply import APPLY, LAST_APPLIED
from webhook.decision_cache.records import (
    Container,
    DecisionInput,
    OwnerReference,
    Pod,
    PodSpec,
    Request,
    Review,
    Text,
    Texts,
    Variable,
)

# The name of the volume that the API server adds to a new pod, with its service account's token.
_TOKEN_VOLUME_PREFIX = "kube-api-access-"  # noqa: S105  # no secret
_TOKEN_VOLUME = re.compile(f"{_TOKEN_VOLUME_PREFIX}[a-z0-9]{{5}}")
# No name in Kubernetes has a question mark.
TOKEN_PLACEHOLDER = "kube-api-access-?????"  # noqa: S105
# A pod with more annotations and labels is not read: left out here, they would count as steps.
_MAX_KEYS = 100
# A reference to a variable begins with it.
_REFERENCE = b"$"
_NO_OWNER = OwnerReference()
_decoder = Decoder(Review)
_encoder = Encoder()


class Reading(NamedTuple):
    """A review of a new pod. `text`, a DecisionInput as JSON, decides; `envelope` does not."""

    text: bytes
    envelope: Envelope


class Reader:
    """Reads reviews for decisions with `profile`.

    `names_matter` says of a namespace whether decisions depend on the names of its pods.
    """

    def __init__(self, profile: Profile, names_matter: Callable[[str], bool]) -> None:
        self._read_keys = read_keys(profile)
        self._read_variables = read_variables(profile)
        self._names_matter = names_matter

    def read(self, path: str, body: bytes) -> Reading | None:
        """The review in `body`, sent to `path`; None if it is no review of an ordinary new pod."""
        try:
            request = _decoder.decode(body).request
            if not _is_ordinary(request.object):
                return None
            envelope = _envelope_of(request)
            text = self._text(path, request, drop_values=True)
            if _REFERENCE in text:
                request = _decoder.decode(body).request
                text = self._text(path, request, drop_values=False)
        except (MsgspecError, RecursionError, UnicodeDecodeError):
            return None
        return Reading(text, envelope) if envelope.uid else None

    def _text(self, path: str, request: Request, *, drop_values: bool) -> bytes:
        """The text of a reading; `request` is changed."""
        pod = request.object
        metadata = pod.metadata
        if drop_values:
            for container in _containers(pod.spec):
                self._drop_values(container)
        metadata.annotations = self._read_part(metadata.annotations)
        metadata.labels = self._read_part(metadata.labels)
        metadata.managedFields = UNSET
        for owner in metadata.ownerReferences or ():
            owner.name = UNSET
        if not self._names_matter(request.namespace):
            metadata.name = metadata.generateName = UNSET
        _rename_token_volume(pod.spec)
        user = request.userInfo.username
        return _encoder.encode(DecisionInput(path, request.namespace, user, pod))

    def _drop_values(self, container: Container) -> None:
        may_be_read = self._read_variables
        env = container.env
        if env:
            container.env = [v if may_be_read[v.name] else Variable(v.name) for v in env]

    def _read_part(self, texts: Texts) -> Texts:
        """The annotations or labels that matter; if there are none, an empty map, for patches."""
        if not texts:
            return texts
        may_be_read = self._read_keys
        return {k: v for k, v in texts.items() if may_be_read[k] or k == FIXED_ANNOTATION}


def _is_ordinary(pod: Pod) -> bool:
    """Whether a decision about `pod` follows from its reading."""
    annotations, labels = pod.metadata.annotations or (), pod.metadata.labels or ()
    if pod.items is not UNSET or len(annotations) + len(labels) > _MAX_KEYS:
        return False
    # What `kubectl apply` creates has a warning of its own, and no replicas.
    managers = pod.metadata.managedFields or ()
    return LAST_APPLIED not in annotations and all(m.operation != APPLY for m in managers)


def _envelope_of(request: Request) -> Envelope:
    metadata = request.object.metadata
    owner = _NO_OWNER
    for reference in metadata.ownerReferences or ():
        if reference.controller is True:
            owner = reference
            break
    return Envelope(  # by position, which takes half of the time
        request.uid,
        "admission.k8s.io/v1",
        "",
        "Pod",
        "pods",
        "CREATE",
        request.namespace,
        request.name,
        metadata.generateName or "",
        owner.kind or "",
        owner.name or "",
        request.userInfo.username,
        request.dryRun,
    )


def review_of(text: bytes) -> AdmissionReview:
    """The review in the `text` of a reading, without what is in the envelope."""
    given = CODEC.loads(text)
    return AdmissionReview(
        uid="",
        api_version="admission.k8s.io/v1",
        group="",
        kind="Pod",
        resource="pods",
        operation="CREATE",
        namespace=given["namespace"],
        name="",
        user=given["user"],
        object=given["object"],
        old=None,
        dry_run=False,
        size=len(text),
    )


def _containers(spec: PodSpec) -> list[Container]:
    if spec.initContainers or spec.ephemeralContainers:
        return [*spec.containers, *(spec.initContainers or ()), *(spec.ephemeralContainers or ())]
    return spec.containers


def _rename_token_volume(spec: PodSpec) -> None:
    """Give the volume with the token, and its mounts, a placeholder for their random name.

    Volumes and mounts are compared with one another only, so it does not matter how they are named.
    """
    volumes = [volume for volume in spec.volumes or () if _is_token_volume(volume.name)]
    if len(volumes) != 1 or volumes[0].hostPath is not UNSET:
        return
    name = volumes[0].name
    mounts = [m for c in _containers(spec) if c.volumeMounts for m in c.volumeMounts]
    others = (*mounts, *(spec.volumes or ()))
    if any(other.name == TOKEN_PLACEHOLDER for other in others):
        return
    volumes[0].name = TOKEN_PLACEHOLDER
    for mount in mounts:
        if mount.name == name:
            mount.name = TOKEN_PLACEHOLDER


def _is_token_volume(name: Text) -> bool:
    if not name or not name.startswith(_TOKEN_VOLUME_PREFIX):
        return False
    return _TOKEN_VOLUME.fullmatch(name) is not None
