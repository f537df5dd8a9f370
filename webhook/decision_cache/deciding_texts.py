"""What of a new pod decides, as a text: the key by which decisions are kept."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.json import Decoder, Encoder

from rules.base.caching import BoundedCache
from rules.base.text_matching import matches_any
from rules.engine.relevant_names import (
    RULES_ABOUT_EVERY_IMAGE,
    is_launcher_image,
    is_ordinary_image,
    may_read_command,
    may_set_size,
    relevant_keys,
    relevant_variables,
)
from rules.engine.rule_set import RuleSet
from rules.gpu.images import is_agent_image
from rules.profile.profile import union_in_order
from webhook.admission.decider import Decider
from webhook.admission.enforcement import FIXED_ANNOTATION, LAST_APPLIED_ANNOTATION
from webhook.decision_cache.records import (
    Container,
    Head,
    OwnerReference,
    PodSpec,
    ReadMetadata,
    Request,
    Text,
    Texts,
    Variable,
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedMap(Generic[K, V]):
    """A map that forgets entries which were not used lately, before it exceeds `max_bytes`.

    There are two generations. If the younger one has filled half of the bytes, it becomes the older
    one, which is forgotten. An entry that is used moves into the younger generation.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes // 2
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._young_bytes = self._old_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """How many bytes the entries take."""
        return self._young_bytes + self._old_bytes

    def get(self, key: K) -> V | None:
        """The value of `key`; None if there is none."""
        found = self._young.get(key)
        if found is not None:
            return found[0]
        found = self._old.pop(key, None)
        if found is None:
            return None
        self._old_bytes -= found[1]
        self.put(key, *found)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep `value`, which takes `size` bytes with its key."""
        if self._young_bytes + size > self._max_bytes:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        self._young[key] = value, size
        self._young_bytes += size


# What of a pod's spec decides, as a text.
#
# Replicas have the same spec, but for the name of the volume with their token. So the texts are
# kept by the specs as they were sent, and most specs need not be decoded. Releases of one program
# mostly differ in the tag of an image, in commands and in values of variables, and have the same
# text.

# The name of the volume that the API server adds to a new pod, with its service account's token.
_TOKEN_VOLUME_PATTERN = re.compile(rb"kube-api-access-[a-z0-9]{5}")
# No name in Kubernetes has a question mark.
TOKEN_PLACEHOLDER = "kube-api-access-?????"  # noqa: S105  # no secret
# It stands for every ordinary image. No reference to an image has a question mark.
IMAGE_PLACEHOLDER = "ordinary-image-?????:?????"
# No JSON text has this character.
_NUL_BYTE = b"\0"
# A reference to a variable begins with it.
_REFERENCE_START = b"$"
_REFERENCE_PATTERN = re.compile(rb"\$\(([^()$]+)\)")
# An escape sequence that may be part of a name: any for a letter, a digit or a sign but `&<>`, the
# only ones that API servers write in this way.
_ESCAPED_NAME_PATTERN = re.compile(rb"\\u00(?:2[^6]|3[^ceCE]|[4-7])")
# Characters of patterns for all images of a pod together. To compare more would take longer than to
# evaluate the pod.
_MAX_COMPARISONS = 50_000
# To tell whether rules know an image takes as long as to compare it with so many.
_COMPARISONS_PER_IMAGE = 500
# What the Python objects of an entry take besides its texts.
_SPEC_ENTRY_BYTES = 400
_decoder = Decoder(PodSpec)
_encoder = Encoder()


class SpecTexts:
    """The texts of specs for decisions by `decider`; kept in at most `max_bytes`."""

    def __init__(self, decider: Decider, max_bytes: int) -> None:
        self._read_variables = relevant_variables(decider.policy.profile)
        self._kept: BoundedMap[tuple[bytes, tuple[str, ...]], bytes] = BoundedMap(max_bytes)

    @property
    def kept_bytes(self) -> int:
        """How many bytes the texts take."""
        return self._kept.kept_bytes

    def deciding_text(self, spec: bytes, image_patterns: tuple[str, ...]) -> bytes | None:
        """The part of `spec` on which the decision depends, as JSON.

        None if `spec` writes characters of names as escapes, for which the texts of two equal specs
        may differ.

        Images that fit one of `image_patterns` are told apart. MsgspecError if `spec` has not the
        usual types.
        """
        found = _TOKEN_VOLUME_PATTERN.search(spec)
        name = found[0] if found else b""
        key = (spec.replace(name, _NUL_BYTE) if name else spec), image_patterns
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        if b"\\u00" in spec and _ESCAPED_NAME_PATTERN.search(spec):
            return None
        is_read = self._refers_to_read_variable(spec)
        decoded, renamed = _decode_spec(spec, image_patterns, with_commands=is_read)
        if not is_read:
            self._drop_irrelevant_values(decoded)
        text = _encoder.encode(decoded)
        if _REFERENCE_START in text:  # then any variable may matter
            text = _encoder.encode(_decode_spec(spec, image_patterns, with_commands=is_read)[0])
        # The text serves for another name as well if every occurrence of this one was renamed.
        if renamed == (name, spec.count(name) if name else 0):
            self._kept.put(key, text, len(key[0]) + len(text) + _SPEC_ENTRY_BYTES)
        return text

    def _refers_to_read_variable(self, spec: bytes) -> bool:
        """Whether a value or a command may refer to a variable, which then cannot be removed."""
        names = _REFERENCE_PATTERN.findall(spec) if _REFERENCE_START in spec else ()
        return any(self._read_variables[name.decode(errors="replace")] for name in names)

    def _drop_irrelevant_values(self, spec: PodSpec) -> None:
        may_be_read = self._read_variables
        for container in _containers(spec):
            if env := container.env:
                container.env = [v if may_be_read[v.name] else Variable(v.name) for v in env]


def _decode_spec(
    spec: bytes, image_patterns: tuple[str, ...], *, with_commands: bool
) -> tuple[PodSpec, tuple[bytes, int]]:
    """What rules may read of `spec`, and what `_rename_token_volume` returns about it."""
    decoded = _decoder.decode(spec)
    if not with_commands:
        _drop_commands(decoded, image_patterns)
    _replace_images(decoded, image_patterns)
    return decoded, _rename_token_volume(decoded)


def _drop_commands(spec: PodSpec, patterns: tuple[str, ...]) -> None:
    """Drop the commands, hooks and probes in which no rule finds anything.

    Agents are known by their programs as well, without arguments, and so are some components, whose
    images fit `patterns`.
    """
    if any(volume.hostPath is not UNSET for volume in spec.volumes or ()):
        return
    for container in _containers(spec):
        if not _may_read_commands(container):
            container.args = UNSET
            image = container.image or ""
            if is_agent_image(image) or matches_any(patterns, image):
                continue
            container.command = UNSET
            for field in ("lifecycle", "readinessProbe"):
                commands = getattr(container, field)
                if commands is not UNSET and not may_read_command(bytes(commands)):
                    setattr(container, field, UNSET)


def _replace_images(spec: PodSpec, patterns: tuple[str, ...]) -> None:
    """Give all ordinary images that fit none of `patterns` the same name."""
    containers = _containers(spec)
    compared = len(containers) * (_COMPARISONS_PER_IMAGE + sum(map(len, patterns)))
    # A pattern that fits the placeholder must not fit images in its place.
    if compared > _MAX_COMPARISONS or matches_any(patterns, IMAGE_PLACEHOLDER):
        return
    for container in containers:
        image = container.image
        if image and is_ordinary_image(image) and not matches_any(patterns, image):
            container.image = IMAGE_PLACEHOLDER


def _may_read_commands(container: Container) -> bool:
    """Whether rules may find something in the commands of a container that mounts no node path."""
    commands = [bytes(raw) for raw in (container.command, container.args) if raw is not UNSET]
    if not commands:
        return False
    if is_launcher_image(container.image or "") or any(map(may_read_command, commands)):
        return True
    return may_set_size(variable.name for variable in container.env or ())


def _containers(spec: PodSpec) -> list[Container]:
    return [*spec.containers, *(spec.initContainers or ()), *(spec.ephemeralContainers or ())]


def _rename_token_volume(spec: PodSpec) -> tuple[bytes, int]:
    """Give the volume with the token, and its mounts, a placeholder for their random name.

    Volumes and mounts are compared with one another only, so it does not matter how they are named.
    Returns the random name, and how often it was replaced.
    """
    volumes = spec.volumes or ()
    token_volumes = [volume for volume in volumes if _is_token_volume(volume.name)]
    if len(token_volumes) != 1 or token_volumes[0].hostPath is not UNSET:
        return b"", 0
    name = token_volumes[0].name or ""
    mounts = [m for c in _containers(spec) for m in c.volumeMounts or ()]
    if any(other.name == TOKEN_PLACEHOLDER for other in (*mounts, *volumes)):
        return b"", 0
    token_volumes[0].name = TOKEN_PLACEHOLDER
    token_mounts = [mount for mount in mounts if mount.name == name]
    for mount in token_mounts:
        mount.name = TOKEN_PLACEHOLDER
    return name.encode(), 1 + len(token_mounts)


def _is_token_volume(name: Text) -> bool:
    return isinstance(name, str) and _TOKEN_VOLUME_PATTERN.fullmatch(name.encode()) is not None


# What of a new pod decides besides its spec, as a text.
#
# Replicas mostly have the same annotations, labels and owner. So the texts are kept by these as
# they were sent, and most need not be decoded.

# A pod with more annotations and labels is not read: left out here, they would count as steps.
_MAX_KEYS = 100
# It stands for all keys that do not matter. No annotation or label has a question mark in its name.
_OTHER_KEYS_PLACEHOLDER = "?????"
# What the Python objects of an entry take besides its texts.
_HEAD_ENTRY_BYTES = 700
_NO_OWNER = OwnerReference()
_texts_decoder = Decoder(dict[str, str])
_owners_decoder = Decoder(list[OwnerReference])
_HeadKey = tuple[str | bytes | UnsetType, ...]


class HeadText(NamedTuple):
    """The text, and the controller of the pod, for the log; empty if there is none."""

    text: bytes
    owner_kind: str
    owner_name: str


class HeadTexts:
    """The texts for decisions by `decider`; kept in at most `max_bytes`."""

    def __init__(self, decider: Decider, max_bytes: int) -> None:
        self._read_keys = relevant_keys(decider.policy.profile)
        self._names_matter = decider.depends_on_names
        self._kept: BoundedMap[_HeadKey, HeadText] = BoundedMap(max_bytes)

    @property
    def kept_bytes(self) -> int:
        """How many bytes the texts take."""
        return self._kept.kept_bytes

    def deciding_text(self, path: str, request: Request, namespace: str) -> HeadText | None:
        """The part of `request`, sent to `path`, on which the decision depends, without the spec.

        The exceptions for `namespace` apply to the pod. None if it has too many keys, or was made
        by `kubectl apply`. MsgspecError if a part has not the usual type.
        """
        sent = request.object.metadata
        names = (sent.name, sent.generateName) if self._names_matter(namespace) else (UNSET, UNSET)
        # No JSON text is empty.
        parts = (sent.annotations, sent.labels, sent.ownerReferences)
        raw = [b"" if part is UNSET else bytes(part) for part in parts]
        user = request.userInfo.username
        key: _HeadKey = (path, request.namespace, user, *names, sent.namespace, *raw)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        annotations, labels = (_texts_decoder.decode(text) if text else UNSET for text in raw[:2])
        if len(annotations or ()) + len(labels or ()) > _MAX_KEYS:
            return None
        if annotations and LAST_APPLIED_ANNOTATION in annotations:
            return None  # what `kubectl apply` creates has a warning of its own, and no replicas
        owners = _owners_decoder.decode(raw[2]) if raw[2] else UNSET
        controller = next((owner for owner in owners or () if owner.controller is True), _NO_OWNER)
        owner_kind, owner_name = controller.kind or "", controller.name or ""
        for owner in owners or ():
            owner.name = UNSET
        annotations, labels = self._relevant_part(annotations), self._relevant_part(labels)
        metadata = ReadMetadata(*names, sent.namespace, annotations, labels, owners)
        text = _encoder.encode(Head(path, request.namespace, user, metadata))
        found = HeadText(text, owner_kind, owner_name)
        # The key has the names in the text once more. A character takes up to four bytes.
        texts = sum(map(len, raw)) + 2 * len(text) + 4 * (len(owner_kind) + len(owner_name))
        self._kept.put(key, found, texts + _HEAD_ENTRY_BYTES)
        return found

    def _relevant_part(self, texts: Texts) -> Texts:
        """The annotations or labels that matter, and whether there are others.

        A patch that removes the only one removes the whole map.
        """
        if not texts:
            return texts
        may_be_read = self._read_keys
        read = {k: v for k, v in texts.items() if may_be_read[k] or k == FIXED_ANNOTATION}
        return read if len(read) == len(texts) else {**read, _OTHER_KEYS_PLACEHOLDER: ""}


# Which images exceptions, components and rules about every image tell apart.

# More take longer to compare with a new image than its pod takes to be evaluated.
_MAX_PATTERNS = 100
_EVERY_IMAGE_PATTERNS = ("*",)


class ImagePatterns(BoundedCache[str, tuple[str, ...]]):
    """For a namespace, the patterns of images that decisions by `rules` may depend on.

    An ordinary image that fits none of them is as good as any other that fits none.
    """

    def __init__(self, rules: RuleSet) -> None:
        super().__init__()
        self._rules = rules
        names = {active.rule.name for active in rules.rules}
        self._tells_all_apart = not RULES_ABOUT_EVERY_IMAGE.isdisjoint(names)

    def __missing__(self, namespace: str) -> tuple[str, ...]:
        """The patterns for a new `namespace`."""
        images = [exception.images for exception in self._rules.exceptions_in(namespace)]
        images += [one.images for one in self._rules.profile.components_in(namespace)]
        patterns = union_in_order(images)
        if self._tells_all_apart or len(patterns) > _MAX_PATTERNS:
            patterns = _EVERY_IMAGE_PATTERNS
        return self.store(namespace, patterns)
