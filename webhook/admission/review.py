"""AdmissionReview v1: JSON, and how a review is decoded from bytes.

Source: Kubernetes documentation, "Dynamic Admission Control"; `k8s.io/api/admission/v1`.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from rules.base.json_values import Json
from rules.objects.kubernetes_objects import CLAIM_GROUP, CLAIM_SPEC_PATHS

# JSON is read and written with orjson where it is installed, else with the standard library. Both
# give the same values for whatever an API server sends; tests compare them.


class Codec(NamedTuple):
    """`loads` raises ValueError or RecursionError if the data is no JSON text in UTF-8."""

    name: str
    loads: Callable[[bytes], Any]
    dumps: Callable[[Any], bytes]


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_encoder = json.JSONEncoder(separators=(",", ":"))

STANDARD_CODEC = Codec(
    "json",
    lambda data: _decoder.decode(data.decode()),
    lambda value: _encoder.encode(value).encode(),
)


# The API server accepts 10,000 levels, which a tenant can write into managedFields, and a review
# adds a few. Each level takes less than 200 bytes of stack.
_C_RECURSION_LIMIT = 12_000
# Two calls for each level, none of them on the C stack.
_PYTHON_RECURSION_LIMIT = 40_000


class _PythonDecoder(json.JSONDecoder):
    """The standard library's decoder without its parts in C.

    From Python 3.12 on, those stop at fewer than 10,000 levels whatever the recursion limit.
    """

    def __init__(self) -> None:
        super().__init__(parse_constant=_refuse_constant)
        self.parse_object = json.decoder.JSONObject  # type: ignore[attr-defined]
        self.parse_array = json.decoder.JSONArray  # type: ignore[attr-defined]
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


_python_decoder = _PythonDecoder()


def loads_deep(data: bytes) -> Any:
    """The value in `data`, nested as deeply as the API server allows; errors as of `loads`."""
    try:
        return _with_recursion_limit(_C_RECURSION_LIMIT, STANDARD_CODEC.loads, data)
    except RecursionError:
        return _with_recursion_limit(
            _PYTHON_RECURSION_LIMIT, lambda data: _python_decoder.decode(data.decode()), data
        )


def _with_recursion_limit(limit: int, loads: Callable[[bytes], Any], data: bytes) -> Any:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        return loads(data)
    finally:
        sys.setrecursionlimit(before)


def fastest_codec() -> Codec:
    """The codec of orjson if that is installed, else that of the standard library."""
    try:
        import orjson  # noqa: PLC0415  # an extra
    except ImportError:
        return STANDARD_CODEC

    def dumps(value: Any) -> bytes:
        try:
            return orjson.dumps(value)
        except TypeError:  # half a surrogate pair: only the standard library writes it
            return STANDARD_CODEC.dumps(value)

    return Codec("orjson", orjson.loads, dumps)


CODEC = fastest_codec()


# Inside a JSON text there would be backslashes before the quotes.
_OBJECT_KEY_PATTERN = re.compile(rb',\s*"object"\s*:')
# What an API server writes before the object: names, and the user with groups and extra values.
MAX_HEAD_BYTES = 64 << 10


class MalformedReviewError(ValueError):
    """The body is no AdmissionReview. The message says why and quotes nothing of the body."""


class TooDeepError(Exception):
    """The body may be nested so deeply that only the slow decoder can read it."""


class AdmissionReview(NamedTuple):
    """The request of one AdmissionReview.

    - `resource`: the plural name, with a subresource after a slash: `pods/ephemeralcontainers`.
    - `object`: the new object; `old`: the one that it replaces. Either may be None.
    - `size_bytes`: the length of the whole review in bytes.
    """

    uid: str
    api_version: str
    group: str
    kind: str
    resource: str
    operation: str
    namespace: str
    name: str
    user: str
    object: Json
    old: Json
    dry_run: bool
    size_bytes: int

    @property
    def is_pod(self) -> bool:
        """Return whether a pod itself is created or changed."""
        return self.kind == "Pod" and not self.group

    @property
    def is_claim(self) -> bool:
        """Return whether a claim for devices is created, or a template of one."""
        return self.group == CLAIM_GROUP and self.kind in CLAIM_SPEC_PATHS


def decode(body: bytes, codec: Codec = CODEC) -> AdmissionReview:
    """The review in `body`; MalformedReviewError if there is none.

    A body that the fast decoders do not read takes a hundred times as long as others.
    """
    try:
        raw = _parse_json(body, codec)
    except RecursionError as error:
        raise MalformedReviewError("the body is nested too deeply") from error
    except ValueError as error:
        raise MalformedReviewError("the body is not JSON") from error
    return _review_in(raw, len(body))


def decode_fast(body: bytes, codec: Codec = CODEC) -> AdmissionReview:
    """As `decode`, in a time proportional to the length of `body`, whatever it is.

    TooDeepError if `decode` might find a review and this does not.
    """
    try:
        try:
            raw = codec.loads(body)
        except (ValueError, RecursionError):  # orjson reads no half of a surrogate pair
            raw = STANDARD_CODEC.loads(body)
    except RecursionError as error:
        raise TooDeepError from error
    except ValueError as error:
        raise MalformedReviewError("the body is not JSON") from error
    return _review_in(raw, len(body))


def _review_in(raw: Any, size: int) -> AdmissionReview:
    if not isinstance(raw, dict) or raw.get("kind") != "AdmissionReview":
        raise MalformedReviewError('the body is not an AdmissionReview (kind: "AdmissionReview")')
    version = raw.get("apiVersion")
    if not isinstance(version, str) or not version:
        raise MalformedReviewError("the AdmissionReview has no apiVersion")
    request = raw.get("request")
    if not isinstance(request, dict):
        raise MalformedReviewError("the AdmissionReview has no request")
    if not isinstance(request.get("uid"), str) or not request["uid"]:
        raise MalformedReviewError("the request has no uid")
    return _review(version, request, size)


def decode_head(body: bytes, codec: Codec = CODEC) -> AdmissionReview | None:
    """The review in `body` without its objects, in a time that does not depend on their size.

    API servers write the objects last. None if the first MAX_HEAD_BYTES are not the beginning of a
    review with an object.
    """
    found = _OBJECT_KEY_PATTERN.search(body, 0, MAX_HEAD_BYTES)
    if found is None:
        return None
    try:
        head = decode_fast(body[: found.start()] + b"}}", codec)
    except (MalformedReviewError, TooDeepError):
        return None
    return head._replace(size_bytes=len(body))


def _parse_json(body: bytes, codec: Codec) -> Any:
    # Nothing becomes garbage while the body is parsed, and the collector would take five times
    # as long as the parser.
    gc.disable()
    try:
        return codec.loads(body)
    except (ValueError, RecursionError):
        # Both codecs stop at about a thousand levels. An error would let the object pass where
        # the failurePolicy is Ignore.
        return loads_deep(body)
    finally:
        gc.enable()


def _review(version: str, request: dict[str, Any], size: int) -> AdmissionReview:
    kind = _object_field(request, "kind")
    subresource = _text_field(request, "subResource")
    resource = _text_field(_object_field(request, "resource"), "resource")
    new, old = request.get("object"), request.get("oldObject")
    for name, value in (("object", new), ("oldObject", old)):
        if value is not None and not isinstance(value, dict):
            raise MalformedReviewError(f"request.{name} is not an object")
    return AdmissionReview(
        uid=request["uid"],
        api_version=version,
        group=_text_field(kind, "group"),
        kind=_text_field(kind, "kind"),
        resource=f"{resource}/{subresource}" if subresource else resource,
        operation=_text_field(request, "operation"),
        namespace=_text_field(request, "namespace"),
        name=_text_field(request, "name"),
        user=_text_field(_object_field(request, "userInfo"), "username"),
        object=new,
        old=old,
        dry_run=request.get("dryRun") is True,
        size_bytes=size,
    )


def _object_field(raw: dict[str, Any], name: str) -> dict[str, Any]:
    value = raw.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedReviewError(f"request.{name} is not an object")
    return value


def _text_field(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedReviewError(f"request.{name} is not text")
    return value
