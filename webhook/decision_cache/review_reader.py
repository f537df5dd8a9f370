"""Read a review of a new pod: what tells the pods of one template apart, and the rest.

The rest is all that a decision depends on. So pods with the same rest get the same decision.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET, MsgspecError
from msgspec.json import Decoder

from rules.objects.object_ref import object_ref
from webhook.admission.answer import Envelope
from webhook.admission.decider import Decider
from webhook.admission.enforcement import APPLY_OPERATION
from webhook.admission.review import CODEC, AdmissionReview
from webhook.decision_cache.deciding_texts import HeadText, HeadTexts, ImagePatterns, SpecTexts
from webhook.decision_cache.records import Request, Review

_decoder = Decoder(Review)


class PodReview(NamedTuple):
    """A review of a new pod. `head` and `spec`, JSON texts, decide; `envelope` does not."""

    head: bytes
    spec: bytes
    envelope: Envelope


class ReviewReader:
    """Reads reviews for `decider`. What it keeps takes at most `max_bytes`."""

    def __init__(self, decider: Decider, max_bytes: int) -> None:
        quarter = max_bytes // 4
        self._heads = HeadTexts(decider, quarter)
        self._specs = SpecTexts(decider, max_bytes - quarter)
        self._image_patterns = ImagePatterns(decider.rules)

    @property
    def kept_bytes(self) -> int:
        """How many bytes are kept."""
        return self._heads.kept_bytes + self._specs.kept_bytes

    def read(self, path: str, body: bytes) -> PodReview | None:
        """The review in `body`, sent to `path`; None if it is no review of an ordinary new pod."""
        try:
            request = _decoder.decode(body).request
            pod = request.object
            if not request.uid or pod.items is not UNSET:
                return None
            for manager in pod.metadata.managedFields or ():
                if manager.operation == APPLY_OPERATION:
                    return None
            namespace = _namespace_of(request)
            head = self._heads.deciding_text(path, request, namespace)
            if head is None:
                return None
            spec = self._specs.deciding_text(bytes(pod.spec), self._image_patterns[namespace])
            if spec is None:
                return None
        except (MsgspecError, RecursionError, UnicodeDecodeError):
            return None
        return PodReview(head.text, spec, _envelope_of(request, head))


def _namespace_of(request: Request) -> str:
    """The namespace whose exceptions apply to the pod."""
    written, namespace = request.object.metadata.namespace, request.namespace
    if written is UNSET or written == namespace:  # API servers let no other pass
        return namespace
    return object_ref("Pod", "", {"namespace": written}, namespace).namespace


def _envelope_of(request: Request, head: HeadText) -> Envelope:
    return Envelope(  # by position, which takes half of the time
        request.uid,
        "admission.k8s.io/v1",
        "",
        "Pod",
        "pods",
        "CREATE",
        request.namespace,
        request.name,
        request.object.metadata.generateName or "",
        head.owner_kind,
        head.owner_name,
        request.userInfo.username,
        request.dryRun,
    )


def review_of(reading: PodReview) -> AdmissionReview:
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
        size_bytes=len(reading.head) + len(reading.spec),
    )
