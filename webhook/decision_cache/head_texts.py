"""What of a new pod decides besides its spec, as a text.

Replicas mostly have the same annotations, labels and owner. So the texts are kept by these as they
were sent, and most need not be decoded.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.json import Decoder, Encoder

from rules.engine.trait_names import read_keys
from webhook.admission.decider import Decider
from webhook.admission.fixed_annotation import FIXED_ANNOTATION
from webhook.admission.second_apply import LAST_APPLIED
from webhook.decision_cache.bounded_map import BoundedMap
from webhook.decision_cache.records import Head, OwnerReference, ReadMetadata, Request, Texts

# A pod with more annotations and labels is not read: left out here, they would count as steps.
_MAX_KEYS = 100
# What the Python objects of an entry take besides its texts.
_ENTRY_BYTES = 700
_NO_OWNER = OwnerReference()
_texts_decoder = Decoder(dict[str, str])
_owners_decoder = Decoder(list[OwnerReference])
_encoder = Encoder()
_Key = tuple[str | bytes | UnsetType, ...]


class HeadText(NamedTuple):
    """The text, and the controller of the pod, for the log; empty if there is none."""

    text: bytes
    owner_kind: str
    owner_name: str


class HeadTexts:
    """The texts for decisions by `decider`; kept in at most `max_bytes`."""

    def __init__(self, decider: Decider, max_bytes: int) -> None:
        self._read_keys = read_keys(decider.policy.profile)
        self._names_matter = decider.depends_on_names
        self._kept: BoundedMap[_Key, HeadText] = BoundedMap(max_bytes)

    @property
    def size(self) -> int:
        """How many bytes the texts take."""
        return self._kept.size

    def text(self, path: str, request: Request, namespace: str) -> HeadText | None:
        """What of `request`, sent to `path`, decides besides the pod's spec.

        The exceptions for `namespace` apply to the pod. None if it has too many keys, or was made
        by `kubectl apply`. MsgspecError if a part has not the usual type.
        """
        sent = request.object.metadata
        names = (sent.name, sent.generateName) if self._names_matter(namespace) else (UNSET, UNSET)
        # No JSON text is empty.
        parts = (sent.annotations, sent.labels, sent.ownerReferences)
        raw = [b"" if part is UNSET else bytes(part) for part in parts]
        user = request.userInfo.username
        key: _Key = (path, request.namespace, user, *names, sent.namespace, *raw)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        annotations, labels = (_texts_decoder.decode(text) if text else UNSET for text in raw[:2])
        if len(annotations or ()) + len(labels or ()) > _MAX_KEYS:
            return None
        if annotations and LAST_APPLIED in annotations:
            return None  # what `kubectl apply` creates has a warning of its own, and no replicas
        owners = _owners_decoder.decode(raw[2]) if raw[2] else UNSET
        controller = next((owner for owner in owners or () if owner.controller is True), _NO_OWNER)
        owner_kind, owner_name = controller.kind or "", controller.name or ""
        for owner in owners or ():
            owner.name = UNSET
        annotations, labels = self._read_part(annotations), self._read_part(labels)
        metadata = ReadMetadata(*names, sent.namespace, annotations, labels, owners)
        text = _encoder.encode(Head(path, request.namespace, user, metadata))
        found = HeadText(text, owner_kind, owner_name)
        # The key has the names in the text once more. A character takes up to four bytes.
        texts = sum(map(len, raw)) + 2 * len(text) + 4 * (len(owner_kind) + len(owner_name))
        self._kept.put(key, found, texts + _ENTRY_BYTES)
        return found

    def _read_part(self, texts: Texts) -> Texts:
        """The annotations or labels that matter; if there are none, an empty map, for patches."""
        if not texts:
            return texts
        may_be_read = self._read_keys
        return {k: v for k, v in texts.items() if may_be_read[k] or k == FIXED_ANNOTATION}
