"""The modes at the real API server, which resolves them by the labels of namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from registration.configurations import MODE_LABEL, RegistrationOptions
from rules.finding import Action
from tests.testkit.admission.registered_webhook import (
    Server,
    by_url,
    create,
    folder_of,
    is_enforced,
    registered,
)
from tests.testkit.admission.reviews import container, deployment, gpus, pod, variable
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.end_to_end.steps import AT_ONCE, annotated, apply, fixed_by

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("tidy")

HOLDER = pod(container(**gpus(limits=1)))
TAKER = pod(container(**variable("all")))


@contextmanager
def installed(
    plane: ControlPlane, server: Server, choices: RegistrationOptions, label: str | None
) -> Iterator[str]:
    """A namespace with that label, in an installation with these choices."""
    namespace = plane.namespace({MODE_LABEL: label} if label else {})
    config = by_url(server.url, plane.authority.bundle)
    with registered(plane, config, choices, name=f"gpuward-{namespace}", only=namespace):
        yield namespace


def spoken_to(plane: ControlPlane, namespace: str) -> Answer:
    """The answer to a pod that takes GPUs, in which we must speak."""
    answer = create(plane, namespace, TAKER, dry_run=True)
    assert answer.warnings
    return answer


def test_warn_leaves_pods_untouched_and_says_what_would_be_fixed_or_refused(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "warn"})
    held = create(plane, namespace, HOLDER, dry_run=True)
    assert held.status == 201
    assert "gpuward [toleration-default] would be fixed: tolerate nvidia.com/gpu:NoSchedule" in (
        held.warnings
    )
    assert fixed_by(held.body) == set()
    assert "affinity" not in held.body["spec"]
    done = apply(plane, namespace, TAKER)
    assert done.stdout == "pod/trainer created\n"
    [said] = done.stderr.splitlines()
    assert said.startswith("Warning: gpuward [visible-devices-env] would be refused: ")


def test_warn_says_what_would_have_been_fixed_beside_the_api_servers_refusal(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "warn"})
    done = apply(plane, namespace, pod(container(**gpus(requests=1))), check=False)
    assert done.returncode == 1
    assert "Warning: gpuward [request-only] would be fixed in container" in done.stderr
    assert "Limit must be set" in done.stderr


def test_audit_shows_the_user_nothing_and_the_audit_log_everything(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "audit"})
    for name, sent in (("holder", HOLDER), ("taker", TAKER)):
        done = apply(plane, namespace, {**sent, "metadata": {"name": name}})
        assert (done.stdout, done.stderr) == (f"pod/{name} created\n", "")
    assert create(plane, namespace, deployment(container(**variable("all")))).warnings == []
    assert annotated(plane, namespace, "holder") == {
        "pods.audit.gpuward.io/affinity-default": "would-be-fixed",
        "pods.audit.gpuward.io/toleration-default": "would-be-fixed",
    }
    assert annotated(plane, namespace, "taker") == {
        "audit.gpuward.io/visible-devices-env": "would-be-denied"
    }
    assert annotated(plane, namespace, "trainer") == {
        "workloads.audit.gpuward.io/visible-devices-env": "would-be-warned"
    }


def test_the_audit_log_says_what_deny_has_done(plane: ControlPlane, server: Server) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "deny"})
    assert create(plane, namespace, HOLDER).status == 201
    assert annotated(plane, namespace, "trainer") == {
        "pods.deny.gpuward.io/affinity-default": "fixed",
        "pods.deny.gpuward.io/toleration-default": "fixed",
    }


def test_off_is_never_sent_to_us(plane: ControlPlane, processes: Processes, tmp_path: Path) -> None:
    pair = plane.authority.issue("gpuward-off", hosts=["127.0.0.1"])
    certificate = folder_of(pair, tmp_path / "certificate")
    # Nobody else is judged by this server, so it counts what this namespace sends alone.
    alone = Server(processes, tmp_path, certificate, name="gpuward-off", arguments=AT_ONCE)
    with installed(plane, alone, RegistrationOptions(default=Action.DENY), "deny") as namespace:
        eventually(partial(is_enforced, plane, namespace), what="it is called")
        plane.kubectl("label", "--overwrite", "namespace", namespace, f"{MODE_LABEL}=off")
        eventually(lambda: create(plane, namespace, TAKER, dry_run=True).status == 201)
        before = alone.metric("gpuward_requests_total")
        assert before > 0
        for sent in (HOLDER, TAKER, deployment(container(**variable("all")))):
            answer = create(plane, namespace, sent, dry_run=True)
            assert (answer.status, answer.warnings, fixed_by(answer.body)) == (201, [], set())
        assert alone.metric("gpuward_requests_total") == before
    alone.stop()


def test_a_misspelt_label_falls_into_the_default(plane: ControlPlane, server: Server) -> None:
    deny = RegistrationOptions(default=Action.DENY)
    for label in (None, "denny", "Off", "OFF"):
        with installed(plane, server, deny, label) as namespace:
            eventually(partial(is_enforced, plane, namespace), what=f"{label} is deny")
    with installed(plane, server, deny, "warn") as namespace:
        answer = eventually(partial(spoken_to, plane, namespace), what="warn is warn")
        assert answer.status == 201


def test_a_label_does_not_reach_below_the_floor(plane: ControlPlane, server: Server) -> None:
    floor = RegistrationOptions(default=Action.DENY, minimum=Action.WARN)
    for label in ("off", "audit", "warn"):
        with installed(plane, server, floor, label) as namespace:
            answer = eventually(partial(spoken_to, plane, namespace), what=f"{label} is warn")
            assert answer.status == 201
            assert [said.split(": ")[0] for said in answer.warnings] == [
                "gpuward [visible-devices-env] would be refused"
            ]


def test_a_new_label_counts_at_once_without_a_word_to_us(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "deny"})
    assert create(plane, namespace, TAKER, dry_run=True).status == 403
    plane.kubectl("label", "--overwrite", "namespace", namespace, f"{MODE_LABEL}=off")
    eventually(lambda: create(plane, namespace, TAKER, dry_run=True).status == 201)
