"""Answer reviews of new pods by the decision about an equal pod.

Most new pods are replicas that a controller makes from one template. Their JSON texts are equal but
for a few names and numbers, which `_replica` leaves out. The rest, as it was sent, is the key
of a kept decision. Decisions do not depend on what is left out, so a kept one is right whatever
rules read. All other reviews are decided without the cache.
"""

# ruff: noqa: N815  # fields have the names that Kubernetes' API gives them

from __future__ import annotations

import datetime
import re
from collections import OrderedDict
from typing import Literal, NamedTuple, TypeAlias

from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType
from msgspec.json import Decoder

from rules.engine.bounds import LARGE_OBJECT_BYTES, StepLimit, TooManyStepsError
from webhook.admission.answer import Answer, Envelope, ReusableAnswer, envelope_of, reusable_answer
from webhook.admission.decider import Decider
from webhook.admission.decision import Decision
from webhook.admission.enforcement import APPLY_OPERATION
from webhook.admission.review import CODEC, MalformedReviewError, TooDeepError, decode_fast
from webhook.registration import ROUTES

# Of all keys and answers together.
MAX_CACHE_BYTES = 16 << 20
# What the Python objects of an entry take besides its texts.
_ENTRY_BYTES = 2_000

AnyJson: TypeAlias = Raw | UnsetType
"""JSON text as it was sent."""


class FieldManager(Struct, gc=False):
    """A manager of fields of a pod, and its operation."""

    operation: str = ""


class Metadata(Struct, gc=False, forbid_unknown_fields=True):
    """The metadata of a new pod. An unknown field might decide, so there may be none."""

    name: str = ""
    generateName: str = ""
    namespace: str = ""
    annotations: AnyJson = UNSET
    labels: AnyJson = UNSET
    ownerReferences: AnyJson = UNSET
    finalizers: AnyJson = UNSET
    generation: AnyJson = UNSET
    uid: str = ""
    creationTimestamp: str | None = None
    managedFields: list[FieldManager] | UnsetType = UNSET


class Pod(Struct, gc=False, forbid_unknown_fields=True):
    """A new pod."""

    apiVersion: Literal["v1"]
    kind: Literal["Pod"]
    metadata: Metadata
    spec: Raw
    status: AnyJson = UNSET


class PodKind(Struct, gc=False):
    """The kind of a request about a pod."""

    kind: Literal["Pod"]
    group: Literal[""] = ""


class PodResource(Struct, gc=False):
    """The resource of a request about a pod."""

    resource: Literal["pods"]
    group: Literal[""] = ""


class UserInfo(Struct, frozen=True, gc=False):
    """The user that sends a request."""

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


_decoder = Decoder(Review)
Key: TypeAlias = tuple[str | bytes, ...]


class Entry(NamedTuple):
    """A kept answer, the envelope of the review that it was made for, and the bytes of both."""

    answer: ReusableAnswer
    envelope: Envelope
    size: int


class ReplicaCache:
    """Answers reviews of new pods, by kept decisions where it can. For use by one thread.

    It decides only about pods of at most `max_objects` JSON objects, in `max_steps` steps.
    """

    def __init__(self, max_objects: int, max_steps: int, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_objects = max_objects
        self._max_steps = max_steps
        self._max_bytes = max_bytes
        self._decider: Decider | None = None
        self._today = datetime.date.min
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self.kept_bytes = 0
        """How many bytes the decisions take."""
        self.hits = self.misses = 0
        """How many reviews were answered by a kept decision, and how many by a new one."""

    def answer(
        self, decider: Decider, today: datetime.date, path: str, body: bytes
    ) -> Answer | None:
        """The answer to the review in `body`, sent to `path`; None if it is for the long way.

        TooManyStepsError; MemoryError.
        """
        if decider is not self._decider or today != self._today:
            self._entries.clear()
            self._decider, self._today, self.kept_bytes = decider, today, 0
        if len(body) > LARGE_OBJECT_BYTES:
            return None  # the long way compares it with the bounds
        try:
            request = _decoder.decode(body).request
            replica = _replica(request.object)
        except (MsgspecError, RecursionError, UnicodeDecodeError):
            return None
        if not _is_ordinary(request):
            return None
        metadata = request.object.metadata
        key: Key = (path, request.namespace, request.userInfo.username, *replica.texts)
        if decider.depends_on_names(request.namespace):
            key = (*key, metadata.name, metadata.generateName)
        kept = self._entries.get(key)
        if kept is None:
            return self._decide(decider, path, body, key, replica.own_names)
        self._entries.move_to_end(key)
        self.hits += 1
        envelope = kept.envelope._replace(
            uid=request.uid,
            name=request.name,
            generate_name=metadata.generateName,
            dry_run=request.dryRun,
        )
        return kept.answer.for_envelope(envelope)

    def _decide(
        self,
        decider: Decider,
        path: str,
        body: bytes,
        key: Key,
        own_names: tuple[str, ...],
    ) -> Answer | None:
        # What is not in the key, such as the managed fields, is read by no rule.
        if sum(part.count(b"{") for part in key if isinstance(part, bytes)) > self._max_objects:
            return None
        route = ROUTES[path]
        decide = decider.mutate if route.webhook == "mutate" else decider.validate
        try:
            review = decode_fast(body)
            decision = decide(review, route.mode, self._today, StepLimit(self._max_steps))
        except (TooManyStepsError, MemoryError):
            raise
        except (MalformedReviewError, TooDeepError):
            return None
        except Exception:  # noqa: BLE001  # the long way meets the same bug, and reports it
            return None
        found, envelope = reusable_answer(route, decision), envelope_of(review)
        answer = found.for_envelope(envelope)
        self.misses += 1
        if not decision.failures and not _names_any(decision, found.details, own_names):
            # A refusal keeps its message and causes both encoded and not.
            size = sum(map(len, key)) + 2 * len(answer.body) + len(found.details) + _ENTRY_BYTES
            self._keep(key, Entry(found, envelope, size))
        return answer

    def _keep(self, key: Key, entry: Entry) -> None:
        self._entries[key] = entry
        self.kept_bytes += entry.size
        while self.kept_bytes > self._max_bytes:
            _, forgotten = self._entries.popitem(last=False)
            self.kept_bytes -= forgotten.size


def _is_ordinary(request: Request) -> bool:
    """Return whether the decision depends only on the texts of pod, namespace and user."""
    metadata = request.object.metadata
    if not request.uid or metadata.namespace not in ("", request.namespace):
        return False
    # The warnings about a pod that was applied say what a second apply would do.
    return all(m.operation != APPLY_OPERATION for m in metadata.managedFields or ())


def _names_any(decision: Decision, details: str, names: tuple[str, ...]) -> bool:
    """Return whether the answer or the log would name what is different in another replica."""
    texts = (decision.operations, decision.warnings, decision.message, decision.causes)
    said = CODEC.dumps((*texts, dict(decision.annotations))) + details.encode()
    return any(CODEC.dumps(name)[1:-1] in said for name in names)


# What differs between the replicas of one template. Texts are as API servers write them, without
# spaces: of another text nothing is left out.

# The volume that the API server adds to a new pod, with the token of its service account.
_TOKEN_VOLUME = re.compile(rb'\{"name":"(kube-api-access-[a-z0-9]{5})","projected":')
# Labels and annotations with the number of a pod in its StatefulSet or Job, or with its name.
_NUMBERS = re.compile(
    rb'"(apps\.kubernetes\.io/pod-index|batch\.kubernetes\.io/job-completion-index'
    rb'|statefulset\.kubernetes\.io/pod-name)":"[^"\\]*"'
)
# The claim that a StatefulSet makes for a pod is named after the pod.
_CLAIM = re.compile(rb'"persistentVolumeClaim":\{"claimName":"([^"\\]*)"')
_NUL = b"\0"  # no JSON text has this character


class Hostname(Struct, gc=False):
    """The field of a pod's spec in which Jobs and StatefulSets repeat the name of the pod."""

    hostname: str = ""


_hostname_decoder = Decoder(Hostname)


class Replica(NamedTuple):
    """The texts that all replicas of a template have in common, and the names that they have not.

    Each is as it was sent, and empty if it was not.
    """

    texts: Key
    own_names: tuple[str, ...]


def _replica(pod: Pod) -> Replica:
    """Return what `pod` shares with other replicas: all but what is made for each pod.

    What a user writes stays, even if it is the same word. MsgspecError if its hostname is no text.
    """
    metadata, spec = pod.metadata, bytes(pod.spec)
    token = _TOKEN_VOLUME.search(spec)
    token_name = token[1] if token else b""
    if token_name:  # of the volume and its mounts
        spec = spec.replace(b'{"name":"%b",' % token_name, b'{"name":"%b",' % _NUL)
    parts = (
        *(metadata.annotations, metadata.labels, metadata.ownerReferences),
        *(metadata.finalizers, metadata.generation, pod.status),
    )
    texts = [b"" if part is UNSET else bytes(part) for part in parts]
    own_names = [token_name.decode(), metadata.name]
    generate_name = metadata.generateName
    if any(b"-index" in text for text in texts[:2]):
        texts[:2] = [_NUMBERS.sub(rb'"\1":', text) for text in texts[:2]]
        # An indexed Job generates names from its own and the number, and sets the same hostname.
        generate_name, job_name = "", generate_name.removesuffix("-")
        hostname = _hostname_decoder.decode(pod.spec).hostname
        field = b'"hostname":"%b"' % hostname.encode()
        # Users may have a key of this name elsewhere, such as in a selector of nodes.
        if hostname in (metadata.name, job_name) and spec.count(field) == 1:
            spec = spec.replace(field, b'"hostname":')
            own_names.append(hostname)
        if metadata.name:
            ending = b'-%b"' % metadata.name.encode()
            spec = _CLAIM.sub(lambda found: found[0].replace(ending, _NUL), spec)
    common: Key = (metadata.namespace, generate_name, spec, *texts)
    return Replica(common, tuple(filter(None, own_names)))
