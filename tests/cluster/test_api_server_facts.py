"""Facts about the API server on which the reasons in api_server_differences.yaml rely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policies.loading import default_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, deployment, gpus, pod
from tests.testkit.cases import TODAY
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.control_plane.quotas import await_quotas

REFUSED = 422
ACCEPTED = 201
GPU = "nvidia.com/gpu"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


def quota(hard: dict[str, Any]) -> dict[str, Any]:
    spec = {"hard": hard}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}


@pytest.mark.parametrize(
    ("written", "admitted"), [("500m", 0), ("1500m", 1), ("2.0001", 2), ("2.9999", 3)]
)
def test_a_fractional_quota_is_accepted_and_acts_as_rounded_down(
    plane: ControlPlane, written: str, admitted: int
) -> None:
    """The API server first rounds up to thousandths: 2.9999 becomes 3."""
    namespace = plane.namespace()
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    plane.create(path, quota({f"requests.{GPU}": written}))

    def is_accepted(number: int) -> bool:
        one = pod(container(**gpus(limits=number)))
        return create(plane, namespace, one, dry_run=True).status == ACCEPTED

    await_quotas(plane, namespace)
    assert [n for n in (1, 2, 3, 4) if is_accepted(n)] == [*range(1, admitted + 1)]


@pytest.mark.parametrize("key", [f"limits.{GPU}", GPU, "aliyun.com/gpu-mem"])
def test_a_fraction_is_refused_for_quota_keys_that_have_no_effect(
    api_server: Cluster, key: str
) -> None:
    namespace = api_server.namespace()
    path = f"/api/v1/namespaces/{namespace}/resourcequotas?dryRun=All"
    assert api_server.request("POST", path, quota({key: "1"})).status == ACCEPTED
    answer = api_server.request("POST", path, quota({key: "1500m"}))
    assert answer.status == REFUSED
    assert "must be an integer" in answer.body["message"]


def test_kubectl_takes_the_last_of_two_equal_keys_and_kustomize_refuses_the_file(
    api_server: Cluster, tmp_path: Path
) -> None:
    namespace = api_server.namespace()
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: twice}\ndata:\n  a: first\n  a: last\n"
    )
    api_server.kubectl("apply", "--validate=strict", "-n", namespace, "-f", "-", input=text)
    stored = api_server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/twice")
    assert stored.body["data"] == {"a": "last"}
    (tmp_path / "twice.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text("resources: [twice.yaml]\n", encoding="utf-8")
    built = api_server.kubectl("kustomize", str(tmp_path), check=False)
    assert 'mapping key "a" already defined' in built.stderr


def test_a_gpu_in_the_overhead_is_accepted_where_the_runtime_class_has_it(
    api_server: Cluster,
) -> None:
    namespace = api_server.namespace()
    name = f"heavy-{namespace}"
    runtime_class = {
        "metadata": {"name": name},
        "handler": "h",
        "overhead": {"podFixed": {GPU: "1"}},
    }
    api_server.create(RUNTIME_CLASSES, runtime_class)
    without_class = pod(container(), overhead={GPU: "1"})
    refused = create(api_server, namespace, without_class, dry_run=True)
    assert "without corresponding RuntimeClass" in refused.body["message"]
    with_class = pod(container(), overhead={GPU: "1"}, runtimeClassName=name)
    assert create(api_server, namespace, with_class, dry_run=True).status == ACCEPTED
    template = deployment(container(), overhead={GPU: "1"})
    assert create(api_server, namespace, template, dry_run=True).status == ACCEPTED


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("gpu", False),
        ("nvidia.com.gpu", False),
        ("requests.nvidia.com/gpu", False),
        ("nvidia.com/gpus", True),
    ],
)
def test_wrong_names_are_refused_only_without_a_domain_or_with_a_quotas_prefix(
    api_server: Cluster, name: str, *, accepted: bool
) -> None:
    namespace = api_server.namespace()
    for make in (pod, deployment):
        manifest = make(container(resources={"limits": {name: 1}}))
        answer = create(api_server, namespace, manifest, dry_run=True)
        assert (answer.status == ACCEPTED) is accepted, answer.body


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
def test_webhook_configurations_are_refused_as_announced(api_server: Cluster, kind: str) -> None:
    rules = default_policy().rule_set()
    fields: list[dict[str, Any]] = [
        *({"sideEffects": v} for v in ("None", "NoneOnDryRun", "Some", "Unknown", "none", None)),
        *({"timeoutSeconds": seconds} for seconds in (1, 10, 11, 30, 31, None)),
    ]
    entry: dict[str, Any] = {
        "name": "mpod-create.koordinator.sh",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"name": "hook", "namespace": "koordinator-system"}},
    }
    group, path = "admissionregistration.k8s.io/v1", f"{kind.lower()}webhookconfigurations"
    for changed in fields:
        manifest = {
            "apiVersion": group,
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "announced"},
            "webhooks": [entry | changed],
        }
        answer = api_server.request("POST", f"/apis/{group}/{path}?dryRun=All", manifest)
        announced = [f for f in check(manifest, rules, Context(TODAY)).findings if f.api_refuses]
        assert answer.status == (REFUSED if announced else ACCEPTED), changed


def test_an_api_server_without_claims_removes_them_from_a_pod_without_a_word(
    plane: ControlPlane,
) -> None:
    """docs/vendors/dra.md says so of old releases. With newer ones the pod keeps them."""
    has_claims = plane.request("GET", "/apis/resource.k8s.io/v1").status == 200
    uses = [{"name": "card", "resourceClaimTemplateName": "card"}]
    manifest = pod(container(resources={"claims": [{"name": "card"}]}), resourceClaims=uses)
    made = create(plane, plane.namespace(), manifest, dry_run=True)
    assert (made.status, made.warnings) == (ACCEPTED, [])
    spec = made.body["spec"]
    assert spec.get("resourceClaims") == (uses if has_claims else None)
    resources = {"claims": [{"name": "card"}]} if has_claims else {}
    assert spec["containers"][0]["resources"] == resources


@pytest.mark.parametrize("through", ["claim", "template"])
def test_a_claim_that_says_its_pod_has_paid_is_not_counted(
    plane: ControlPlane, through: str
) -> None:
    """The reason of `reserved-claim-annotation`: a quota of one GPU, and a pod that gets two."""
    version = "resource.k8s.io/v1"
    if plane.request("GET", f"/apis/{version}").status != 200:
        pytest.skip("this Kubernetes does not serve claims for devices by default")
    namespace = plane.namespace()
    card = f"{namespace}.example.com/card"
    device_class = {"metadata": {"name": namespace}, "spec": {"extendedResourceName": card}}
    plane.create(f"/apis/{version}/deviceclasses", device_class)
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    plane.create(quotas, quota({f"requests.{card}": "1"}))
    await_quotas(plane, namespace)
    paid = {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}}
    request = {"name": "card", "exactly": {"deviceClassName": namespace}}
    spec = {"devices": {"requests": [request]}}
    folder = f"/apis/{version}/namespaces/{namespace}"
    template = {"metadata": {"name": "second"}, "spec": {"metadata": paid, "spec": spec}}
    plane.create(f"{folder}/resourceclaimtemplates", template)
    uses = [{"name": "second", "resourceClaimTemplateName": "second"}]
    fields = {"resourceClaims": uses} if through == "template" else {}
    manifest = pod(container(resources={"limits": {card: 1}}), **fields)
    made = create(plane, namespace, manifest)
    assert made.status == ACCEPTED

    def claims() -> list[Any]:
        found: list[Any] = plane.request("GET", f"{folder}/resourceclaims").body["items"]
        return found

    if through == "claim":
        uid = made.body["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "trainer", "uid": uid}
        metadata = {"name": "second", "ownerReferences": [{**owner, "controller": True}]}
        path = f"{folder}/resourceclaims"

        def refusal(metadata: dict[str, Any]) -> str:
            """The message about such a claim, which is not stored; empty if it is accepted."""
            made = {"metadata": metadata, "spec": spec}
            answer = plane.request("POST", f"{path}?dryRun=All", made)
            return "" if answer.status == ACCEPTED else str(answer.body["message"])

        # Quotas are counted with classes of devices and pods that are known a little later.
        eventually(lambda: "exceeded quota" in refusal(metadata), what="an honest claim is refused")
        eventually(lambda: not refusal({**metadata, **paid}), what="the other one is accepted")
        assert "exceeded quota" in refusal(metadata)
        plane.create(path, {"metadata": {**metadata, **paid}, "spec": spec})
    else:
        eventually(claims, what="the claim of the template is made")
    assert len(claims()) == 1
    used = plane.request("GET", f"{quotas}/q").body["status"]["used"]
    assert used == {f"requests.{card}": "1"}
    plane.request("DELETE", f"/apis/{version}/deviceclasses/{namespace}")
