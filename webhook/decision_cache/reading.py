"""Read a review of a new pod: what tells the pods of one template apart, and the rest.

The rest is all that a decision depends on. So pods with the same rest get the same decision.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET, MsgspecError
from msgspec.json import Decoder, Encoder

from rules.traits.names import read_keys
from webhook.admission.codec import CODEC
from webhook.admission.decider import Decider
from webhook.admission.fixed_annotation import FIXED_ANNOTATION
from webhook.admission.response import Envelope
from webhook.admission.review import AdmissionReview
from webhook.admission.second_apply import APPLY, LAST_APPLIED
from webhook.decision_cache.records import Head, OwnerReference, Pod, Request, Review, Texts
from webhook.decision_cache.spec_texts import SpecTexts

# A pod with more annotations and labels is not read: left out here, they would count as steps.
_MAX_KEYS = 100
_NO_OWNER = OwnerReference()
_decoder = Decoder(Review)
_encoder = Encoder()


class Reading(NamedTuple):
    """A review of a new pod. `head` and `spec`, JSON texts, decide; `envelope` does not."""

    head: bytes
    spec: bytes
    envelope: Envelope


class Reader:
    """Reads reviews for `decider`. The texts of specs are kept in at most `max_bytes`."""

    def __init__(self, decider: Decider, max_bytes: int) -> None:
        profile = decider.policy.profile
        self._read_keys = read_keys(profile)
        self._names_matter = decider.depends_on_names
        self.spec_texts = SpecTexts(profile, max_bytes, decider.depends_on_image)

    def read(self, path: str, body: bytes) -> Reading | None:
        """The review in `body`, sent to `path`; None if it is no review of an ordinary new pod."""
        try:
            request = _decoder.decode(body).request
            pod = request.object
            if not request.uid or not _is_ordinary(pod):
                return None
            envelope = _envelope_of(request)
            spec = self.spec_texts.text(bytes(pod.spec))
            return Reading(self._head(path, request), spec, envelope)
        except (MsgspecError, RecursionError, UnicodeDecodeError):
            return None

    def _head(self, path: str, request: Request) -> bytes:
        """What decides besides the spec; `request` is changed."""
        metadata = request.object.metadata
        metadata.annotations = self._read_part(metadata.annotations)
        metadata.labels = self._read_part(metadata.labels)
        metadata.managedFields = UNSET
        for owner in metadata.ownerReferences or ():
            owner.name = UNSET
        if not self._names_matter(request.namespace):
            metadata.name = metadata.generateName = UNSET
        return _encoder.encode(Head(path, request.namespace, request.userInfo.username, metadata))

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


def review_of(reading: Reading) -> AdmissionReview:
    """The review in the texts of `reading`, without what is in the envelope."""
    head, spec = CODEC.loads(reading.head), CODEC.loads(reading.spec)
    return AdmissionReview(
        uid="",
        api_version="admission.k8s.io/v1",
        group="",
        kind="Pod",
        resource="pods",
        operation="CREATE",
        namespace=head["namespace"],
        name="",
        user=head["user"],
        object={"apiVersion": "v1", "kind": "Pod", "metadata": head["metadata"], "spec": spec},
        old=None,
        dry_run=False,
        size=len(reading.head) + len(reading.spec),
    )
