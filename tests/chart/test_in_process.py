"""The output of `gpuward export`, as objects of the release."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from typing import Any

import pytest

from policies.loading import default_policy
from tests.testkit.admission.in_process import FIRST_MINOR
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.chart.installation import CHART, SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.chart.rendering import HELMS, of_kind, render, render_error
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from tests.testkit.dry_runs import minor_version
from webhook.in_process.cli import main as export
from webhook.in_process.fixes import fix_objects
from webhook.in_process.objects import ExportOptions, policy_objects

pytest_plugins = ["tests.testkit.chart.fixtures"]

KINDS = (
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
)
NO_LABEL_POLICY = {"modeLabelPolicy": {"enabled": False}}


@pytest.fixture(scope="module")
def exported() -> str:
    """The output of the command."""
    with redirect_stdout(io.StringIO()) as output:
        assert export(["vap", "map"]) == 0
    return output.getvalue()


def values(objects: str, **more: Any) -> str:
    made = {"inProcess": {"objects": objects}, **NO_LABEL_POLICY, **more}
    return json.dumps(made)  # is YAML, too, and written in a moment


@pytest.mark.slow
@pytest.mark.parametrize("helm", HELMS)
def test_they_are_what_was_exported_with_the_labels_of_the_release(
    helm: str, exported: str
) -> None:
    made = [one for kind in KINDS for one in of_kind(render(values(exported), helm=helm), kind)]
    assert len(made) == 42
    by_name = {one["metadata"]["name"]: one for one in made}
    policy, options = default_policy(), ExportOptions()
    for one in (*policy_objects(policy, options), *fix_objects(policy, options)):
        found = by_name.pop(one["metadata"]["name"])
        assert found["spec"] == one["spec"]
        assert found["metadata"]["annotations"] == one["metadata"]["annotations"]
        assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    assert by_name == {}


def test_without_an_export_there_are_none() -> None:
    assert [one for kind in KINDS for one in of_kind(render(values("")), kind)] == []


@pytest.mark.parametrize(
    "text",
    [
        "kind: ClusterRole\nmetadata: {name: gpuward-x, annotations: {gpuward.io/digest: x}}",
        "kind: ValidatingAdmissionPolicy\nmetadata: {name: gpuward-x}",
        "gpuward.yaml",
        "- a list",
        "a: [",
    ],
)
@pytest.mark.parametrize("place", [1, 3])
def test_anything_else_is_refused(text: str, place: int, exported: str) -> None:
    documents = exported.split("\n---\n")[:2]
    documents.insert(place - 1, text)
    error = render_error(values("\n---\n".join(documents)))
    assert f"inProcess.objects: document {place} is not of `gpuward export`" in error


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_they_refuse_and_fix_without_the_webhook_and_go_with_the_release(
    chart_plane: ControlPlane, kubelet: Kubelet, helm: str, exported: str
) -> None:
    if minor_version(chart_plane) < FIRST_MINOR:
        pytest.skip("an older API server may crash while it compiles policies")
    registered = "/apis/admissionregistration.k8s.io/v1"
    bypass = pod(container(**variable("all")))
    with Installation(chart_plane, kubelet, helm) as installation:
        given = merge_values(SLOW_MACHINE, {"inProcess": {"objects": exported}})
        # Helm 4 creates all policies at once, and the API server compiles each before it answers:
        # with few cores too late for the last ones. The next attempt has fewer left.
        waits = ("--create-namespace", "--wait", TIMEOUT)
        eventually(
            lambda: installation.helm("upgrade --install", str(CHART), *waits, values=given),
            seconds=300,
            what="helm has installed the release",
        )
        kinds = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
        chart_plane.kubectl("delete", kinds, "gpuward")
        namespace = chart_plane.namespace({"gpuward.io/mode": "deny"})
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        body = {**bypass, "metadata": {"name": "bypass"}}

        def is_refused() -> bool:
            answer = chart_plane.request("POST", path, body)
            return answer.status == 403 and "gpuward-bypass-deny" in answer.body["message"]

        eventually(is_refused, what="the API server refuses the bypass")
        # Beside a request, the policy that fixes pods removes the variable before others see it.
        asking = pod(container(**variable("all"), resources={"limits": {"nvidia.com/gpu": "1"}}))

        def is_fixed() -> bool:
            body = {**asking, "metadata": {"name": "asking"}}
            answer = chart_plane.request("POST", path, body)
            assert answer.status == 201, answer.body
            return not answer.body["spec"]["containers"][0].get("env")

        eventually(is_fixed, what="the API server fixes what asks for a GPU")
        installation.uninstall()
        for kind in ("validatingadmissionpolicies", "mutatingadmissionpolicies"):
            left = chart_plane.request("GET", f"{registered}/{kind}").body["items"]
            assert [one["metadata"]["name"] for one in left] == []
        eventually(
            lambda: chart_plane.request("POST", path, body).status == 201, what="nothing refuses it"
        )
