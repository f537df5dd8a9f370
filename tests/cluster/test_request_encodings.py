"""A bypass is refused in whatever encoding a client sends it to the API server."""

from __future__ import annotations

import json

import pytest

from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]

BYPASS = pod(container(**variable("all")))
PROTOBUF = "application/vnd.kubernetes.protobuf"
# How Kubernetes marks a message of protobuf.
MAGIC = b"k8s\x00"
UNSUPPORTED = 415


def field(number: int, content: bytes) -> bytes:
    """One field of a message of protobuf: text, bytes or another message."""
    assert len(content) < 1 << 14  # two bytes are enough for the length
    low, high = len(content) & 0x7F, len(content) >> 7
    length = bytes([low | 0x80, high]) if high else bytes([low])
    return bytes([number << 3 | 2]) + length + content


def protobuf_pod(namespace: str, *variables: tuple[bytes, bytes]) -> bytes:
    """A Pod with these variables, as `k8s.io/api/core/v1/generated.proto` numbers the fields."""
    env = b"".join(field(7, field(1, name) + field(2, value)) for name, value in variables)
    one = field(1, b"main") + field(2, b"registry.example.com/app:1") + env
    metadata = field(1, b"trainer") + field(3, namespace.encode())
    message = field(1, metadata) + field(2, field(2, one))
    kind = field(1, b"v1") + field(2, b"Pod")
    return MAGIC + field(1, kind) + field(2, message)


def submit(plane: ControlPlane, namespace: str, body: bytes, content_type: str) -> Response:
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    return plane.request("POST", path, body, content_type=content_type)


def is_refused(answer: Response) -> bool:
    return "gpuward [visible-devices-env]" in str(answer.body)


@pytest.mark.parametrize(
    "variables",
    [
        [(b"NVIDIA_VISIBLE_DEVICES", b"all")],
        # A field that stands twice has the last value; a variable, too.
        [(b"NVIDIA_VISIBLE_DEVICES", b"void"), (b"NVIDIA_VISIBLE_DEVICES", b"all")],
        # Go decodes bytes that are no text, and the webhook gets U+FFFD in their place.
        [(b"NVIDIA_VISIBLE_DEVICES", b"all\xff")],
        [(b"NVIDIA_VISIBLE_DEVICES", b"void\xff")],
    ],
)
def test_protobuf(
    plane: ControlPlane, enforced_namespace: str, variables: list[tuple[bytes, bytes]]
) -> None:
    body = protobuf_pod(enforced_namespace, *variables)
    assert is_refused(submit(plane, enforced_namespace, body, PROTOBUF))


def test_a_harmless_pod_of_protobuf_is_admitted(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    body = protobuf_pod(enforced_namespace, (b"NVIDIA_VISIBLE_DEVICES", b"void"))
    answer = submit(plane, enforced_namespace, body, PROTOBUF)
    assert answer.body["spec"]["containers"][0]["env"][0]["value"] == "void"


def test_yaml(plane: ControlPlane, enforced_namespace: str) -> None:
    manifest = {**BYPASS, "metadata": {"name": "trainer", "namespace": enforced_namespace}}
    text = "# JSON is YAML\n" + json.dumps(manifest)
    assert is_refused(submit(plane, enforced_namespace, text.encode(), "application/yaml"))


def test_server_side_apply(plane: ControlPlane, enforced_namespace: str) -> None:
    manifest = {**BYPASS, "metadata": {"name": "trainer", "namespace": enforced_namespace}}
    path = f"/api/v1/namespaces/{enforced_namespace}/pods/trainer?fieldManager=x&dryRun=All"
    kind = "application/apply-patch+yaml"
    assert is_refused(plane.request("PATCH", path, manifest, content_type=kind))


@pytest.mark.parametrize("repeated", ["spec", "containers", "env"])
def test_keys_that_stand_twice(plane: ControlPlane, enforced_namespace: str, repeated: str) -> None:
    """The API server and gpuward do not read the same bytes: the last key counts for both."""
    text = json.dumps({**BYPASS, "metadata": {"name": "t", "namespace": enforced_namespace}})
    hidden = {"spec": "{}", "containers": "[]", "env": "[]"}[repeated]
    doubled = text.replace(f'"{repeated}": ', f'"{repeated}": {hidden}, "{repeated}": ')
    assert doubled != text
    assert is_refused(submit(plane, enforced_namespace, doubled.encode(), "application/json"))


def test_cbor_is_refused_or_judged(plane: ControlPlane, enforced_namespace: str) -> None:
    """Kubernetes serves it behind a feature gate; the head says that what follows is CBOR."""
    answer = submit(plane, enforced_namespace, b"\xd9\xd9\xf7\xa0", "application/cbor")
    assert answer.status == UNSUPPORTED
