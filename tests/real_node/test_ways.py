"""Ways to a GPU that are no new Pod at the API server, or that take the node over first."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rules.placement.exclusion import exclusion
from rules.placement.node_affinity import REQUIRED_AFFINITY
from tests.testkit.admission.registered_webhook import create, is_enforced
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.container_runtime.node import ALL, shown
from tests.testkit.control_plane.processes import eventually
from tests.testkit.exporter import ACCOUNT, CONTROLLER, exporter_pod
from tests.testkit.real_node.images import Image
from tests.testkit.real_node.node import SHOW_DEVICES, STATIC_PODS, RealNode, show_devices_root
from tests.testkit.real_node.pods import (
    answer,
    container_status,
    create_pod,
    devices,
    has_ended,
    log,
    pods,
    wait,
    waiting_pod,
)
from tests.testkit.real_node.programs import shim_client, show_devices
from webhook.registration import MODE_LABEL

CTR = "gpuward.test/ctr:1"
SHIM_CLIENT = "gpuward.test/shim-client:1"
READ_BY_HANDLE = "gpuward.test/read-by-handle:1"
BYPASS = variable("all")
# From linux/fcntl.h and bits/fcntl-linux.h; the handle follows its size and its type.
_AT_FDCWD, _MAX_HANDLE_BYTES = -100, 128
_SIZE_OF_HANDLE = 8 + _MAX_HANDLE_BYTES


@pytest.fixture
def without(real_node: RealNode) -> Iterator[str]:
    """A namespace that gpuward does not evaluate."""
    name = real_node.plane.namespace()
    yield name
    real_node.remove_pods(name)


@pytest.fixture
def deny(real_node: RealNode, server: Server) -> Iterator[str]:
    """A namespace in mode `deny`."""
    assert server.url
    name = real_node.plane.namespace({MODE_LABEL: "deny"})
    yield name
    real_node.remove_pods(name)


def debug(node: RealNode, namespace: str, target: str, *options: str) -> str:
    """Add an ephemeral container by kubectl; its error, empty if it was added."""
    command = ("debug", "-n", namespace, target, f"--image={SHOW_DEVICES}", "--container=debugger")
    return node.plane.kubectl(*command, *options, check=False).stderr


def ended(node: RealNode, namespace: str, name: str, container_name: str) -> Any:
    """The pod whose name begins so, once its container has ended."""

    def find() -> Any:
        found = [one for one in pods(node.plane, namespace) if name in one["metadata"]["name"]]
        return next((one for one in found if has_ended(one, container_name)), None)

    wait(f"{container_name} of {name} ends", find)
    return find()


def test_an_ephemeral_container_gets_what_its_variable_says_unless_gpuward_refuses_it(
    real_node: RealNode, without: str, deny: str
) -> None:
    for namespace in (without, deny):
        waiting_pod(real_node, namespace, "plain", pod(container()))
    assert not debug(real_node, without, "plain", "--env=NVIDIA_VISIBLE_DEVICES=all")
    found = ended(real_node, without, "plain", "debugger")
    assert answer(real_node.plane, found, "debugger").gpus == ALL
    refusal = debug(real_node, deny, "plain", "--env=NVIDIA_VISIBLE_DEVICES=all")
    assert "gpuward [visible-devices-env]" in refusal
    assert not debug(real_node, deny, "plain")
    assert not answer(real_node.plane, ended(real_node, deny, "plain", "debugger"), "debugger").gpus


def test_debugging_the_node_gives_all_its_gpus(real_node: RealNode, without: str) -> None:
    """Kubectl's profile `sysadmin` makes a privileged pod, which names its node."""
    target = f"node/{real_node.name}"
    command = ("debug", "-n", without, target, f"--image={SHOW_DEVICES}", "--profile=sysadmin")
    real_node.plane.kubectl(*command)
    found = ended(real_node, without, "node-debugger", "debugger")
    assert answer(real_node.plane, found, "debugger").gpus == ALL


def test_no_webhook_is_asked_about_a_static_pod(real_node: RealNode, deny: str) -> None:
    """Its mirror is admitted, because the container runs already."""
    made = pod(container(**BYPASS, image=SHOW_DEVICES), restartPolicy="Never")
    metadata = {"name": "static", "namespace": deny}
    file = STATIC_PODS / "static.json"
    file.write_text(json.dumps({**made, "metadata": metadata}), encoding="utf-8")
    try:
        found = ended(real_node, deny, f"static-{real_node.name}", "main")
        assert answer(real_node.plane, found).gpus == ALL
    finally:
        file.unlink()
        eventually(lambda: not pods(real_node.plane, deny), what="the static pod is gone")


def test_a_pod_that_names_its_node_is_rejected_while_others_have_the_cards(
    real_node: RealNode, without: str
) -> None:
    """The rule about `nodeName` says so: the kubelet rejects it, and nothing tries again."""
    waiting_pod(real_node, without, "all", pod(container(**gpus(limits=3))))
    named = pod(container(**gpus(limits=1), image=SHOW_DEVICES), nodeName=real_node.name)
    named["metadata"] = {"name": "named"}
    assert create_pod(real_node.plane, without, named).status == 201
    path = f"/api/v1/namespaces/{without}/pods/named"
    status = eventually(
        lambda: (
            (found := real_node.plane.request("GET", path).body["status"])["phase"] == "Failed"
            and found
        ),
        what="the kubelet rejects the pod",
    )
    assert status["reason"] == "UnexpectedAdmissionError"
    assert devices(real_node, without, "all").gpus == ALL


def test_a_pod_that_names_its_node_is_kept_off_by_the_kubelet(
    real_node: RealNode, without: str
) -> None:
    """So the fix of the rule gpu-node-without-request holds for it, too."""
    real_node.plane.kubectl("label", "node", real_node.name, "kept-off=yes", "--overwrite")
    terms = [{"matchExpressions": [exclusion("kept-off", ["yes"])]}]
    affinity = {"nodeAffinity": {REQUIRED_AFFINITY: {"nodeSelectorTerms": terms}}}
    named = pod(container(**BYPASS, image=SHOW_DEVICES), nodeName=real_node.name, affinity=affinity)
    named["metadata"] = {"name": "named"}
    assert create_pod(real_node.plane, without, named).status == 201
    path = f"/api/v1/namespaces/{without}/pods/named"
    status = eventually(
        lambda: (
            (found := real_node.plane.request("GET", path).body["status"])["phase"] == "Failed"
            and found
        ),
        what="the kubelet rejects the pod",
    )
    assert status["reason"] == "NodeAffinity"
    assert not status.get("containerStatuses")
    real_node.plane.kubectl("label", "node", real_node.name, "kept-off-")


def test_a_gpu_cannot_be_added_to_a_running_pod(real_node: RealNode, without: str) -> None:
    """So an in-place resize needs no rule of its own."""
    waiting_pod(real_node, without, "plain", pod(container()))
    resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    change = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    refused = real_node.plane.request(
        "PATCH",
        f"/api/v1/namespaces/{without}/pods/plain/resize",
        change,
        content_type="application/strategic-merge-patch+json",
    )
    assert refused.status == 422
    assert "only cpu and memory resources are mutable" in refused.body["message"]


def test_the_socket_of_containerd_is_worth_all_gpus(
    real_node: RealNode, without: str, tmp_path: Path
) -> None:
    """Its container starts another one past the kubelet, as containerd's own command line does."""
    shutil.copy2(real_node.program("ctr"), tmp_path / "ctr")
    real_node.import_images([Image(CTR, tmp_path, ("/ctr",))])
    folder = str(show_devices_root(real_node.folder))
    mount = "--mount=type=bind,src=/dev,dst=/host,options=rbind"
    options = ["--rm", "--privileged", mount, "--rootfs"]
    arguments = ["run", *options, folder, "taken", "/show-devices", "/host"]
    made = pod(
        container(
            image=CTR,
            args=arguments,
            volumeMounts=[{"name": "run", "mountPath": "/run/containerd"}],
        ),
        volumes=[{"name": "run", "hostPath": {"path": "/run/containerd"}}],
    )
    made["metadata"] = {"name": "socket"}
    assert create_pod(real_node.plane, without, made).status == 201
    found = ended(real_node, without, "socket", "main")
    *_, shown_devices = log(real_node.plane, found, "main").splitlines()
    assert shown(shown_devices).gpus == ALL


def test_the_sockets_of_shims_run_a_program_of_the_node_as_root(
    real_node: RealNode, without: str, deny: str, tmp_path: Path
) -> None:
    """They need not be written, nor any privilege: a shim lets a program take what another writes.

    That program it starts itself, outside of every container.
    """
    image, written = tmp_path / "image", tmp_path / "written"
    image.mkdir()
    shutil.copy2(shim_client(), image / "shim-client")
    real_node.import_images([Image(SHIM_CLIENT, image, ("/shim-client",))])
    script = real_node.folder / "take-over"
    script.write_text(f"#!/bin/sh\ngrep -E 'Uid|CapEff' /proc/$$/status > {written}\n")
    script.chmod(0o755)
    other = waiting_pod(real_node, without, "other", pod(container()))
    identity = container_status(other, "main")["containerID"].removeprefix("containerd://")
    mount = {"name": "shims", "mountPath": "/shims", "readOnly": True}
    made = pod(
        container(
            image=SHIM_CLIENT, args=["/shims", identity, f"binary://{script}"], volumeMounts=[mount]
        ),
        volumes=[{"name": "shims", "hostPath": {"path": "/run/containerd/s"}}],
    )
    made["metadata"] = {"name": "shims"}
    assert create_pod(real_node.plane, without, made).status == 201
    found = ended(real_node, without, "shims", "main")
    assert written.exists(), log(real_node.plane, found, "main")
    assert _has_every_capability_of(written.read_text(), Path("/proc/self/status").read_text())
    made["spec"]["containers"][0] |= gpus(limits=1)
    warnings = create_pod(real_node.plane, deny, made).warnings
    assert any("runtime-socket" in warning for warning in warnings), warnings


def _has_every_capability_of(status: str, own: str) -> bool:
    """Return whether the `status` of a process is that of root with the capabilities of `own`."""
    found, expected = (
        dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        for text in (status, own)
    )
    return found["Uid"].split()[0] == "0" and found["CapEff"] == expected["CapEff"]


def test_a_capability_opens_the_files_of_the_node(
    real_node: RealNode, without: str, deny: str, tmp_path: Path
) -> None:
    """The kubelet mounts files of its own folder's file system into every container."""
    shutil.copy2(show_devices(), tmp_path / "read-by-handle")
    real_node.import_images([Image(READ_BY_HANDLE, tmp_path, ("/read-by-handle",))])
    secret = Path("/var/lib/kubelet/key-of-the-kubelet")
    secret.write_text("a secret of the node", encoding="utf-8")
    secret.chmod(0o600)
    said = {}
    for name, added in (("plain", "CHOWN"), ("capable", "DAC_READ_SEARCH")):
        made = pod(
            container(
                image=READ_BY_HANDLE,
                args=["/dev/termination-log", *handle(secret)],
                securityContext={"capabilities": {"add": [added]}},
            )
        )
        made["metadata"] = {"name": name}
        assert create_pod(real_node.plane, without, made).status == 201
        said[name] = log(real_node.plane, ended(real_node, without, name, "main"), "main")
    assert "operation not permitted" in said["plain"]
    assert said["capable"] == "a secret of the node"
    made["spec"]["containers"][0] |= gpus(limits=1)
    refused = create_pod(real_node.plane, deny, made)
    assert refused.status == 403
    assert "gpuward [sys-admin-gpu]" in refused.body["message"]


@pytest.mark.parametrize(("recursive", "below"), [("Disabled", "rw"), ("Enabled", "ro")])
def test_what_is_mounted_below_a_read_only_mount_stays_writable(
    real_node: RealNode, without: str, recursive: str, below: str
) -> None:
    """The control groups below `/sys`, unless the mount is recursively read-only."""
    path, handler = "/apis/node.k8s.io/v1/runtimeclasses", "runc"
    real_node.plane.request("POST", path, {"metadata": {"name": handler}, "handler": handler})
    mount = {"name": "sysfs", "mountPath": "/node", "readOnly": True}
    made = pod(container(volumeMounts=[{**mount, "recursiveReadOnly": recursive}]))
    made["spec"] |= {
        "runtimeClassName": handler,
        "volumes": [{"name": "sysfs", "hostPath": {"path": "/sys"}}],
    }
    waiting = waiting_pod(real_node, without, recursive.lower(), made)
    process = real_node.process(waiting["status"]["containerStatuses"][0])
    lines = Path(f"/proc/{process}/mountinfo").read_text(encoding="utf-8").splitlines()
    options = {fields[4]: fields[5].split(",")[0] for fields in map(str.split, lines)}
    assert options["/node"] == "ro"
    assert options["/node/fs/cgroup"] == below


def test_an_exporter_is_excused_and_another_program_in_its_image_is_not(
    real_node: RealNode, without: str, server: Server
) -> None:
    """With the exporter's variable and capability, any program gets every GPU."""
    assert server.url
    plane, deny = real_node.plane, "gpu-monitoring"
    labelled = {"name": deny, "labels": {MODE_LABEL: "deny"}}
    plane.create(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": labelled}
    )
    wait(f"{deny} is enforced", lambda: is_enforced(plane, deny))
    # The program makes device files to see which it may open.
    capabilities = {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}
    program = {"command": ["/show-devices"], "args": ["mounts"], **BYPASS}
    made = exporter_pod({**program, **capabilities})
    image, root = made["spec"]["containers"][0]["image"], show_devices_root(real_node.folder)
    real_node.import_images([Image(image, root, ("/pause",))])
    for namespace in (without, deny):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
        plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    # Nothing has made a DaemonSet, so the pod would be removed with its owner.
    orphan = {**made, "metadata": {"name": "exporter"}}
    assert create_pod(plane, without, orphan).status == 201
    found = ended(real_node, without, "exporter", "exporter")
    assert shown(log(plane, found, "exporter")).gpus == ALL
    own = create(plane, deny, exporter_pod(BYPASS), dry_run=True, user=CONTROLLER)
    assert own.status == 201
    refused = create(plane, deny, made, dry_run=True, user=CONTROLLER)
    assert refused.status == 403
    assert "gpuward [" in refused.body["message"]


def handle(file: Path) -> list[str]:
    """The type of the file's handle, and its bytes in hexadecimal digits."""
    found = ctypes.create_string_buffer(struct.pack("Ii", _MAX_HANDLE_BYTES, 0), _SIZE_OF_HANDLE)
    libc, mount = ctypes.CDLL(None, use_errno=True), ctypes.c_int()
    place = ctypes.c_char_p(bytes(file))
    failed = libc.name_to_handle_at(_AT_FDCWD, place, found, ctypes.byref(mount), 0)
    assert not failed, os.strerror(ctypes.get_errno())
    size, kind = struct.unpack_from("Ii", found)
    return [str(kind), found.raw[8 : 8 + size].hex()]


@pytest.mark.usefixtures("plane")
def test_a_pod_that_is_deleted_by_force_keeps_no_card(real_node: RealNode, without: str) -> None:
    """A quota no longer counts it, so its container ends at once, however patient its pod is."""
    hour = 3600
    patient = pod(
        container(**gpus(limits=1), lifecycle={"preStop": {"sleep": {"seconds": hour}}}),
        terminationGracePeriodSeconds=2 * hour,
    )
    for name in ("waits", "forced"):
        waiting_pod(real_node, without, name, patient)
    folder = f"/api/v1/namespaces/{without}/pods"
    assert real_node.plane.request("DELETE", f"{folder}/waits").status == 200
    forced = real_node.plane.request("DELETE", f"{folder}/forced", {"gracePeriodSeconds": 0})
    assert forced.status == 200
    eventually(lambda: not processes_of("forced"), what="the container has ended")
    # The control: an ordinary deletion waits, and the pod is counted until it has ended.
    assert processes_of("waits")
    assert [one["metadata"]["name"] for one in pods(real_node.plane, without)] == ["waits"]


def processes_of(pod_name: str) -> list[str]:
    """The processes of a pod, which have its name in their environment."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = file.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [file.parent.name] * (f"HOSTNAME={pod_name}".encode() in variables)
    return found
