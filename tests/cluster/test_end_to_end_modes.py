"""The modes at a real API server, which selects them by the labels of namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url, create, is_enforced, registered
from tests.testkit.admission.reviews import container, deployment, gpus, pod, variable
from tests.testkit.admission.server_process import Server, folder_of
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.end_to_end.steps import DENY, NO_DRAIN, apply, audit_annotations, fixing_rules
from webhook.registration import MODE_LABEL, RegistrationOptions

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")

GPU_POD = pod(container(**gpus(limits=1)))
BYPASS_POD = pod(container(**variable("all")))


@contextmanager
def installation(
    plane: ControlPlane, server: Server, options: RegistrationOptions, label: str | None
) -> Iterator[str]:
    """A namespace with that label, in an installation with these options."""
    namespace = plane.namespace({MODE_LABEL: label} if label else {})
    config = by_url(server.url, plane.authority.bundle)
    with registered(plane, config, options, name=f"gpuward-{namespace}", only=namespace):
        yield namespace


def warned_response(plane: ControlPlane, namespace: str) -> Response:
    """The response to a pod that uses a bypass; it must have a warning."""
    answer = create(plane, namespace, BYPASS_POD, dry_run=True)
    assert answer.warnings
    return answer


def test_warn_leaves_pods_untouched_and_says_what_would_be_fixed_or_refused(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "warn"})
    response = create(plane, namespace, GPU_POD, dry_run=True)
    assert response.status == 201
    assert response.warnings == [], "what it lacks is only a default"
    assert fixing_rules(response.body) == set()
    assert "affinity" not in response.body["spec"]
    done = apply(plane, namespace, BYPASS_POD)
    assert done.stdout == "pod/trainer created\n"
    [message] = done.stderr.splitlines()
    assert message.startswith(
        "Warning: gpuward [visible-devices-env] would be refused in mode deny: "
    )


def test_warn_says_what_would_have_been_fixed_beside_the_api_servers_refusal(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "warn"})
    done = apply(plane, namespace, pod(container(**gpus(requests=1))), check=False)
    assert done.returncode == 1
    assert "Warning: gpuward [request-only] would be fixed in container" in done.stderr
    assert "Limit must be set" in done.stderr


def test_audit_writes_to_the_audit_log_and_warns_no_user(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "audit"})
    for name, sent in (("gpu-pod", GPU_POD), ("bypass-pod", BYPASS_POD)):
        done = apply(plane, namespace, {**sent, "metadata": {"name": name}})
        assert (done.stdout, done.stderr) == (f"pod/{name} created\n", "")
    assert create(plane, namespace, deployment(container(**variable("all")))).warnings == []
    assert audit_annotations(plane, namespace, "gpu-pod") == {
        "pods.audit.gpuward.io/affinity-default": "would-be-fixed",
        "pods.audit.gpuward.io/toleration-default": "would-be-fixed",
    }
    assert audit_annotations(plane, namespace, "bypass-pod") == {
        "audit.gpuward.io/visible-devices-env": "would-be-denied"
    }
    assert audit_annotations(plane, namespace, "trainer") == {
        "workloads.audit.gpuward.io/visible-devices-env": "would-be-warned"
    }


def test_the_audit_log_has_what_deny_has_fixed(plane: ControlPlane, server: Server) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "deny"})
    assert create(plane, namespace, GPU_POD).status == 201
    assert audit_annotations(plane, namespace, "trainer") == {
        "pods.deny.gpuward.io/affinity-default": "fixed",
        "pods.deny.gpuward.io/toleration-default": "fixed",
    }


def test_pods_in_mode_off_are_not_sent_to_gpuward(
    plane: ControlPlane, processes: Processes, tmp_path: Path
) -> None:
    pair = plane.authority.issue("gpuward-off", hosts=["127.0.0.1"])
    certificate = folder_of(pair, tmp_path / "certificate")
    # This server evaluates no other namespace, so its counters are those of this one.
    server = Server(processes, tmp_path, certificate, name="gpuward-off", arguments=NO_DRAIN)
    with installation(plane, server, DENY, "deny") as namespace:
        eventually(partial(is_enforced, plane, namespace), what="it is called")
        plane.kubectl("label", "--overwrite", "namespace", namespace, f"{MODE_LABEL}=off")
        eventually(lambda: create(plane, namespace, BYPASS_POD, dry_run=True).status == 201)
        before = server.metric("gpuward_requests_total")
        assert before > 0
        for sent in (GPU_POD, BYPASS_POD, deployment(container(**variable("all")))):
            answer = create(plane, namespace, sent, dry_run=True)
            assert (answer.status, answer.warnings, fixing_rules(answer.body)) == (201, [], set())
        assert server.metric("gpuward_requests_total") == before
    server.stop()


def test_a_misspelled_label_means_the_default_mode(plane: ControlPlane, server: Server) -> None:
    for label in (None, "denny", "Off", "OFF"):
        with installation(plane, server, DENY, label) as namespace:
            eventually(partial(is_enforced, plane, namespace), what=f"{label} is deny")
    with installation(plane, server, DENY, "warn") as namespace:
        answer = eventually(partial(warned_response, plane, namespace), what="warn is warn")
        assert answer.status == 201


def test_a_label_cannot_select_less_than_the_minimum_mode(
    plane: ControlPlane, server: Server
) -> None:
    warn_at_least = DENY._replace(minimum=Action.WARN)
    for label in ("off", "audit", "warn"):
        with installation(plane, server, warn_at_least, label) as namespace:
            answer = eventually(partial(warned_response, plane, namespace), what=f"{label} is warn")
            assert answer.status == 201
            assert [message.split(": ")[0] for message in answer.warnings] == [
                "gpuward [visible-devices-env] would be refused in mode deny"
            ]


def test_a_new_label_takes_effect_without_a_request_to_gpuward(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "deny"})
    assert create(plane, namespace, BYPASS_POD, dry_run=True).status == 403
    plane.kubectl("label", "--overwrite", "namespace", namespace, f"{MODE_LABEL}=off")
    eventually(lambda: create(plane, namespace, BYPASS_POD, dry_run=True).status == 201)
