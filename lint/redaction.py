"""Replace the names and values of an object, without changing what rules find in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rules.base.json_values import Json

# What rules, drivers and Kubernetes give a meaning. A value with one of these words stays.
_KNOWN = re.compile(
    r"nvidia|cuda|gpu|nccl|infiniband|rdma|imex|cdi\.k8s|nri\.io|xpu|npu|vgpu|hami|volcano|koordinator"
    r"|aliyun|amd\.com|intel\.com|gke|eks|aks|kubernetes\.io|k8s\.io|sigs\.k8s|kueue|^(all|none|void)$"
    r"|^/(dev|proc|sys|run|var/run|var/lib/kubelet|usr|etc)(/|$)|docker\.sock|containerd|crio",
    re.IGNORECASE,
)
# Numbers and amounts, such as 0,1 or 16Gi.
_AMOUNT = re.compile(r"[\d.,+-]{1,20}[A-Za-z]{0,3}", re.ASCII)
# Words of the API, such as NoSchedule.
_API_WORD = re.compile(r"[A-Z][A-Za-z]{2,30}", re.ASCII)
# REGISTRY/FOLDER/NAME:TAG, where the registry has a dot or a port.
_IMAGE = re.compile(r"[\w-]+(?:\.[\w-]+)*(?:[.:][\w-]+)(?:/[\w.-]+)*/([\w.-]+:[\w.@:-]+)", re.ASCII)
_STRUCTURE = frozenset(
    {"apiVersion", "kind", "operator", "effect", "type", "fieldPath", "resource"}
)
_FREE_KEYS = frozenset(
    {"labels", "annotations", "matchLabels", "nodeSelector", "data", "stringData", "binaryData"}
)
# Fields in which no word is one of the API: those of variables, ConfigMaps, Secrets and commands.
_USER_FIELDS = frozenset({"value", "data", "stringData", "binaryData", "command", "args"})
_LEFT_OUT = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
MAX_TEXTS = 2_000
"""How many different texts an object may have, because the rules run once for each."""


class TooManyTextsError(Exception):
    """The object has more than MAX_TEXTS different texts."""


def redact(manifest: Json, findings_of: Callable[[Json], Any], keep: Iterable[str] = ()) -> Json:
    """The object with other texts, about which `findings_of` says the same.

    A text that occurs twice is replaced by the same text. Texts that contain a word of `keep`, or
    that mean something to rules, stay. Raises TooManyTextsError.
    """
    words = tuple(keep)
    small: Json = _without(manifest)
    expected = findings_of(manifest)
    if findings_of(small) != expected:
        small = manifest
    texts: dict[str, bool] = {}
    for text, may_be_api_word in _texts(small):
        texts[text] = texts.get(text, True) and may_be_api_word
    if len(texts) > MAX_TEXTS:
        raise TooManyTextsError
    replaced: dict[str, str] = {}
    # Numbers by place, so that what is redacted already stays as it is.
    for number, (text, may_be_api_word) in enumerate(texts.items(), 1):
        if any(word in text for word in words):
            continue
        other = text
        if not (may_be_api_word and _API_WORD.fullmatch(text)):
            other = _other(text, f"redacted-{number}")
        tried = {**replaced, text: other}
        if other != text and findings_of(_replaced(small, tried)) == expected:
            replaced = tried
    redacted: Json = _replaced(small, replaced)
    return redacted


def _other(text: str, name: str) -> str:
    """The text that replaces `text`: `name`, unless it means something.

    Where an image means something, the registry and the folder of it do not.
    """
    if not text or _AMOUNT.fullmatch(text):
        return text
    image = _IMAGE.fullmatch(text)
    if image and _KNOWN.search(image[1]):
        return f"registry.example.com/{image[1]}"
    if image or not _KNOWN.search(text):
        return name
    # Of a script, only the words that mean something stay.
    return re.sub(r"\S+", _known_word, text) if re.search(r"\s", text) else text


def _known_word(match: re.Match[str]) -> str:
    return match[0] if _KNOWN.search(match[0]) else "redacted"


def _without(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without(inner) for name, inner in value.items() if name not in _LEFT_OUT}
    return [*map(_without, value)] if isinstance(value, list) else value


def _texts(value: Any, key: str = "", *, of_user: bool = False) -> Iterator[tuple[str, bool]]:
    """The texts that may be replaced, and whether each may be a word of the API.

    They are values, and the keys that users choose.
    """
    of_user = of_user or key in _USER_FIELDS
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if key in _FREE_KEYS:
                yield name, not of_user
            yield from _texts(inner, name, of_user=of_user)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key, of_user=of_user)
    elif isinstance(value, str) and (of_user or key not in _STRUCTURE):
        yield value, not of_user


def _replaced(value: Any, texts: Mapping[str, str], key: str = "", *, of_user: bool = False) -> Any:
    of_user = of_user or key in _USER_FIELDS
    if isinstance(value, Mapping):
        return {
            texts.get(name, name) if key in _FREE_KEYS else name: _replaced(
                inner, texts, name, of_user=of_user
            )
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_replaced(inner, texts, key, of_user=of_user) for inner in value]
    if isinstance(value, str) and (of_user or key not in _STRUCTURE):
        return texts.get(value, value)
    return value
