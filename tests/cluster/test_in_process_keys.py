"""The exported policy about keys of ConfigMaps and Secrets, on a real API server."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from typing import Any

import pytest

from policies.loading import load_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.admission.in_process import ADMIN, Exports, Said, observed, own_exports
from tests.testkit.cases import TODAY
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.processes import eventually
from tests.testkit.policy_mistakes import POLICY_HEADER
from webhook.admission.messages import message_with_help
from webhook.in_process.keys import MAX_FOUND, MAX_KEYS, key_objects
from webhook.in_process.objects import ExportOptions

NVIDIA = "NVIDIA_VISIBLE_DEVICES"
WRITER = "system:serviceaccount:kai-scheduler:binder"
NAMESPACE, EXCEPTED = "tenant", "gpu-tools"
POLICY = load_policy(
    POLICY_HEADER
    + f"""\
rules:
  visible-devices-key: {{action: deny, options: {{writers: ["{WRITER}"]}}}}
exceptions:
  - rules: [visible-devices-key]
    match: {{namespace: {NAMESPACE}, name: trusted-*, kind: Secret}}
    reason: administrators alone write these
  - rules: [visible-devices-key]
    match: {{namespace: {EXCEPTED}}}
    reason: administrators alone write there
""",
    "a test",
)
RULES = POLICY.rule_set()
RESOURCES = {"ConfigMap": "configmaps", "Secret": "secrets"}
TEXT = {"ConfigMap": ("data",), "Secret": ("stringData",)}
# Fields in which values are base64.
ENCODED = {"ConfigMap": ("binaryData",), "Secret": ("data",)}
FIELDS = [(kind, f) for kind in RESOURCES for f in (*TEXT[kind], *ENCODED[kind])]
NOTHING = Said(frozenset(), frozenset())
KNOWN = [
    *(NVIDIA, "AMD_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES"),
    *("HABANA_VISIBLE_DEVICES_2", "MTHREADS_VISIBLE_DEVICES", "CXPU_VISIBLE_DEVICES"),
    *("AWS_NEURON_VISIBLE_DEVICES", "DOCKER_RESOURCE_GPU", "DOCKER_RESOURCE_MINE", "CUDA_VERSION"),
]
NEAR = [
    *("nvidia_visible_devices", "NVIDIA_VISIBLE_DEVICE", "NVIDIA_VISIBLE_DEVICES.txt"),
    *("MY_NVIDIA_VISIBLE_DEVICES", "NVIDIA-VISIBLE-DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
    *("CUDA_VISIBLE_DEVICES", "DOCKER_RESOURCE", "A_HABANA_VISIBLE_DEVICES", "run.sh"),
]


@pytest.fixture(scope="module")
def exports(
    control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exports]:
    with own_exports(control_plane_programs, tmp_path_factory.mktemp("keys")) as made:
        yield made


@pytest.fixture(scope="module")
def policy_namespace(exports: Exports) -> str:
    """The namespace by which `Exports` knows the policy."""
    added = exports.add(POLICY, ExportOptions(), key_objects)
    labels = exports.labels_of(added)
    del labels["kubernetes.io/metadata.name"]
    for name in (NAMESPACE, EXCEPTED):
        own = {"metadata": {"name": name, "labels": labels}}
        exports.plane.create("/api/v1/namespaces", own)
    return added


@pytest.fixture(scope="module")
def namespace(policy_namespace: str) -> str:
    assert policy_namespace
    return NAMESPACE


def made(kind: str, namespace: str, field: str, *keys: str, name: str = "subject") -> Any:
    """An object with these keys in a field."""
    value = base64.b64encode(b"all").decode() if field in ENCODED[kind] else "all"
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        field: dict.fromkeys(keys, value),
    }


def submit(exports: Exports, manifest: Any, user: str = ADMIN, *, dry_run: bool = True) -> Response:
    metadata, resource = manifest["metadata"], RESOURCES[manifest["kind"]]
    path = f"/api/v1/namespaces/{metadata['namespace']}/{resource}"
    if "uid" in metadata:
        path += f"/{metadata['name']}"
    method = "PUT" if "uid" in metadata else "POST"
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
    query = "?dryRun=All" if dry_run else ""
    return exports.plane.request(method, f"{path}{query}", manifest, headers)


def said_of(exports: Exports, manifest: Any, user: str = ADMIN) -> Said:
    said = observed(submit(exports, manifest, user))
    assert said is not None
    return said


def said_by_lint(manifest: Any) -> Said:
    """What the rule says of a manifest in a file, whose user is not known."""
    found = check(manifest, RULES, Context(TODAY, "default")).findings
    return Said(frozenset(f"[{f.rule}] {message_with_help(f)}" for f in found), frozenset())


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_key_is_refused_in_every_field(
    exports: Exports, namespace: str, kind: str, field: str
) -> None:
    manifest = made(kind, namespace, field, "LOG_LEVEL", *KNOWN)
    said = said_of(exports, manifest)
    assert said == said_by_lint(manifest)
    assert len(said.denied) == len(KNOWN)


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_near_names_are_accepted(exports: Exports, namespace: str, kind: str, field: str) -> None:
    manifest = made(kind, namespace, field, *NEAR)
    assert said_of(exports, manifest) == said_by_lint(manifest) == NOTHING


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_an_update_is_refused_for_what_it_adds(
    exports: Exports, namespace: str, kind: str, field: str
) -> None:
    new = made(kind, namespace, field, NVIDIA, "A", name=f"kept-{kind}-{field}".lower())
    answer = submit(exports, new, WRITER, dry_run=False)
    assert answer.status == 201
    old = answer.body
    stored = "data" if kind == "Secret" else field
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert said_of(exports, labelled) == NOTHING
    (value, *_) = old[stored].values()
    assert said_of(exports, {**old, stored: {**old[stored], "B": value}}) == NOTHING
    for added in ("AMD_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES3"):
        (text,) = said_of(exports, {**old, stored: {**old[stored], added: value}}).denied
        assert text.startswith(f'[visible-devices-key] the {kind} has the key "{added}"')
        added_by_writer = {**old, stored: {**old[stored], added: value}}
        assert said_of(exports, added_by_writer, WRITER) == NOTHING


def test_a_key_is_refused_however_it_is_sent(exports: Exports, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    plain = made("Secret", namespace, "stringData", "A", name="plain")
    assert submit(exports, plain, dry_run=False).status == 201
    added = {"stringData": {NVIDIA: "all"}}
    operations = [{"op": "add", "path": "/stringData", "value": added["stringData"]}]
    applied = {**plain, **added}
    for kind, body in (
        ("application/merge-patch+json", added),
        ("application/strategic-merge-patch+json", added),
        ("application/json-patch+json", operations),
        ("application/apply-patch+yaml", applied),
    ):
        url = f"{path}/plain?dryRun=All" + ("&fieldManager=a&force=true" if "apply" in kind else "")
        said = observed(exports.plane.request("PATCH", url, body, content_type=kind))
        assert said is not None, kind
        assert len(said.denied) == 1, kind


def test_a_writer_and_an_exception_are_accepted(exports: Exports, namespace: str) -> None:
    key = made("ConfigMap", namespace, "data", NVIDIA)
    assert said_of(exports, key, WRITER) == NOTHING
    assert said_of(exports, key, "system:serviceaccount:kai-scheduler:other").denied
    trusted = made("Secret", namespace, "stringData", NVIDIA, name="trusted-1")
    assert said_of(exports, trusted) == said_by_lint(trusted) == NOTHING
    other = made("ConfigMap", namespace, "data", NVIDIA, name="trusted-1")
    assert said_of(exports, other) == said_by_lint(other) != NOTHING


@pytest.mark.usefixtures("namespace")
def test_the_namespace_of_an_exception_is_accepted(exports: Exports) -> None:
    for kind, field in FIELDS:
        manifest = made(kind, EXCEPTED, field, NVIDIA)
        assert said_of(exports, manifest) == said_by_lint(manifest) == NOTHING


@pytest.mark.parametrize(("mode", "warnings"), [("warn", 1), ("audit", 0), ("off", 0)])
def test_modes_decide_what_happens(
    exports: Exports, policy_namespace: str, mode: str, warnings: int
) -> None:
    other = exports.namespace_like(policy_namespace, **{"gpuward.io/mode": mode})
    key = made("ConfigMap", other, "data", NVIDIA)

    def is_as_expected() -> bool:
        said = said_of(exports, key)
        return not said.denied and len(said.warned) == warnings

    eventually(is_as_expected, what=f"mode {mode}")


@pytest.mark.parametrize("block", range(3))
def test_random_objects_are_judged_as_by_the_linter(
    exports: Exports, namespace: str, block: int
) -> None:
    refused = accepted = 0
    for seed in range(block * 100, block * 100 + 100):
        manifest = random_object(random.Random(seed), namespace)  # noqa: S311
        said = said_of(exports, manifest)
        assert said == said_by_lint(manifest), manifest
        refused += bool(said.denied)
        accepted += not said.denied
    assert refused >= 30
    assert accepted >= 20


def random_object(choose: random.Random, namespace: str) -> Any:
    """A ConfigMap or Secret with a few keys in some of its fields, one of them perhaps in two."""
    kind = choose.choice([*RESOURCES])
    name = choose.choice(["settings", "trusted-a", "others"])
    manifest = made(kind, namespace, TEXT[kind][0], name=name)
    pool = [*choose.sample(NEAR, 4), *choose.sample(KNOWN, choose.choice([0, 0, 1, 3]))]
    for field in (*TEXT[kind], *ENCODED[kind]):
        keys = [key for key in pool if choose.random() < 0.5]
        manifest |= {field: made(kind, namespace, field, *keys)[field]}
        if kind == "ConfigMap":  # its API has each key once
            pool = [key for key in pool if key not in keys]
    return manifest


def test_what_costs_too_much_is_refused(exports: Exports, namespace: str) -> None:
    def said(*keys: str) -> frozenset[str]:
        return said_of(exports, made("ConfigMap", namespace, "data", *keys)).denied

    many = [f"a-long-name-of-a-setting-{number}" for number in range(MAX_KEYS)]
    assert said(*many) == frozenset()
    (found,) = said(*many[1:], "HABANA_VISIBLE_DEVICES_LAST")
    assert "HABANA_VISIBLE_DEVICES_LAST" in found
    (found,) = said(*many, "one-more")
    assert found.startswith("[too-large]")
    variables = [f"HABANA_VISIBLE_DEVICES_{number}" for number in range(MAX_FOUND + 1)]
    assert len(said(*variables[1:])) > 10
    (found,) = said(*variables)
    assert found.startswith("[too-large]")


def test_an_object_that_was_too_large_gets_no_name(exports: Exports, namespace: str) -> None:
    """It may still be updated otherwise, also if it has many of the keys already."""
    many = [f"HABANA_VISIBLE_DEVICES_{number}" for number in range(MAX_KEYS // 2)]
    many += [f"setting-{number}" for number in range(MAX_KEYS)]
    new = made("ConfigMap", namespace, "data", *many, name="large")
    answer = submit(exports, new, WRITER, dry_run=False)
    assert answer.status == 201
    old = answer.body
    assert said_of(exports, {**old, "data": {**old["data"], "B": "b"}}) == NOTHING
    (found,) = said_of(exports, {**old, "data": {**old["data"], NVIDIA: "all"}}).denied
    assert found.startswith("[visible-devices-key]")
