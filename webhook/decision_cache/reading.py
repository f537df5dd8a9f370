"""Read a review of a new pod: what tells the pods of one template apart, and the rest.

The rest is all that a decision depends on. So pods with the same rest get the same decision.
"""

from __future__ import annotations

import re
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
    Metadata,
    OwnerReference,
    PodSpec,
    Request,
    Review,
    Text,
    Texts,
    Variable,
)

# The volume that the API server adds to a new pod, with the token of its service account.
_TOKEN_VOLUME_PREFIX = "kube-api-access-"  # noqa: S105  # no secret
_TOKEN_VOLUME = re.compile(f"{_TOKEN_VOLUME_PREFIX}[a-z0-9]{{5}}")
TOKEN_PLACEHOLDER = b"kube-api-access-?????"  # no name in Kubernetes has a question mark
_NAMED_PLACEHOLDER = b'"name":"%b"' % TOKEN_PLACEHOLDER
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
    """Reads reviews for decisions with `profile`, which depend on names if `names_matter`."""

    def __init__(self, profile: Profile, *, names_matter: bool) -> None:
        self._read_keys = read_keys(profile)
        self._read_variables = read_variables(profile)
        self._names_matter = names_matter

    def read(self, path: str, body: bytes) -> Reading | None:
        """The review in `body`, sent to `path`; None if it is no review of an ordinary new pod."""
        try:
            request = _decoder.decode(body).request
            if _is_applied(request.object.metadata):
                return None  # a user applied it, with a warning of its own and without replicas
            envelope = _envelope_of(request)
            text = self._text(path, request, drop_values=True)
            if _REFERENCE in text:
                request = _decoder.decode(body).request
                text = self._text(path, request, drop_values=False)
        except (MsgspecError, RecursionError):
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
        if not self._names_matter:
            metadata.name = metadata.generateName = UNSET
        user = request.userInfo.username
        text = _encoder.encode(DecisionInput(path, request.namespace, user, pod))
        return _rename_token_volume(pod.spec, text)

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


def _is_applied(metadata: Metadata) -> bool:
    """Whether `kubectl apply` created the pod."""
    if LAST_APPLIED in (metadata.annotations or ()):
        return True
    return any(manager.operation == APPLY for manager in metadata.managedFields or ())


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


def _rename_token_volume(spec: PodSpec, text: bytes) -> bytes:
    """`text` with a placeholder for the random name of the token's volume.

    Unchanged if the name or the placeholder is in the text for another reason.
    """
    volumes = [volume for volume in spec.volumes or () if _is_token_volume(volume.name)]
    if len(volumes) != 1 or volumes[0].hostPath is not UNSET or TOKEN_PLACEHOLDER in text:
        return text
    named = volumes[0].name or ""
    if named in [container.name for container in _containers(spec)]:
        return text
    name = named.encode()
    renamed = text.replace(b'"name":"%b"' % name, _NAMED_PLACEHOLDER)
    return text if name in renamed else renamed


def _is_token_volume(name: Text) -> bool:
    if not name or not name.startswith(_TOKEN_VOLUME_PREFIX):
        return False
    return _TOKEN_VOLUME.fullmatch(name) is not None
