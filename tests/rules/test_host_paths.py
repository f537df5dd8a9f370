"""Tests of the host path rules: which paths they report, in every spelling."""

# ruff: noqa: S108  # paths of a node; the tests write nothing to them

from __future__ import annotations

import datetime
from typing import Any

import pytest

from policies.loading import load_policy
from rules.engine.fixing import check
from rules.profile.context import Context

RULES = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\n", "test").rule_set()
CONTEXT = Context(today=datetime.date(2030, 6, 15))
FAMILY = ("device-hostpath", "runtime-socket", "plugin-dir-hostpath")


def pod(path: Any, *, gpu: bool, **mount: Any) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": "example.com/main:1",
        "volumeMounts": [{"name": "host", "mountPath": "/host", **mount}],
    }
    if gpu:
        container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    volume = {"name": "host", "hostPath": {"path": path}}
    spec = {"containers": [container], "volumes": [volume]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sample"}, "spec": spec}


def rules_found(path: Any, *, gpu: bool = True, **mount: Any) -> list[str]:
    result = check(pod(path, gpu=gpu, **mount), RULES.restricted_to(FAMILY), CONTEXT)
    assert not result.failures
    return [finding.rule for finding in result.findings]


DEVICE_FILES = [
    "/dev/nvidia0",
    "/dev/nvidia127",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-modeset",
    "/dev/nvidia-caps",
    "/dev/nvidia-caps/nvidia-cap3",
    "/dev/nvidia-caps-imex-channels/channel0",
    "/dev/dxg",
    "/dev/dri",
    "/dev/dri/renderD128",
    "/dev/kfd",
    "/dev/mkfd",
    "/dev/davinci0",
    "/dev/davinci_manager",
    "/dev/accel",
    "/dev/accel0",
    "/dev/accel/accel0",
    "/dev/accel/accel_controlD0",
    "/dev/hl0",
    "/dev/hl_controlD0",
    "/dev/neuron15",
    "/dev/cambricon_dev0",
    "/dev/iluvatar0",
    "/dev/mxcd",
    "/dev/gcu0",
    "/dev/gcu0vid1",
    "/dev/gcuctl",
    "/dev/mtgpu.0",
    "/dev/mtgpu0",
    "/dev/biren",
    "/dev/biren/card_0",
    "/dev/biren-m",
    "/dev/xpu0",
    "/dev/xpuctrl",
    "/dev/vastai_video0",
    # Other spellings of a device file.
    "/dev/nvidia0/",
    "//dev//nvidia0",
    "/dev/./nvidia0/.",
    "/dev/shm/../nvidia0",
    "/../dev/nvidia0",
    "dev/nvidia0",
]
SIBLINGS = [
    "/device",
    "/device/nvidia0",
    "/devices/dri",
    "/dev/null",
    "/dev/shm",
    "/dev/shm/nvidia0",
    "/dev/infiniband",
    "/dev/aperture_devices",
    "/dev/gcuda",
    "/dev/xpu",
    "/dev/mtgpux",
    "/dev/nvidiactl2",
    "/dev/nvidia0x",
    "/dev/drip",
    "/dev/kfd0",
    "/dev/NVIDIA0",
    "/dev/hlx",
    "/dev/accelerometer",
    "/home/kubernetes/bin/nvidia",
    "/usr/lib/nvidia",
    "/dev/nvidia0/../null",
    "/run/dev",
]
PASSED = ("/dev/vfio", "/dev/vfio/", "/dev/vfio/12")


@pytest.mark.parametrize("path", DEVICE_FILES)
@pytest.mark.parametrize("gpu", [True, False])
def test_a_device_file_is_reported_in_every_pod(path: str, gpu: bool) -> None:  # noqa: FBT001
    assert rules_found(path, gpu=gpu) == ["device-hostpath"]


@pytest.mark.parametrize("path", SIBLINGS)
def test_a_sibling_is_no_device_file(path: str) -> None:
    assert "device-hostpath" not in rules_found(path)


@pytest.mark.parametrize(
    "path", ["/", "//", "/.", "/dev", "/dev/", "//dev/.", "/x/../dev", *PASSED]
)
def test_what_shows_other_devices_too_is_reported_only_in_gpu_pods(path: str) -> None:
    assert rules_found(path, gpu=True) == ["device-hostpath"]
    assert rules_found(path, gpu=False) == []


@pytest.mark.parametrize(
    ("path", "sub_path", "rules"),
    [
        ("/", "dev/nvidia0", ["device-hostpath"]),
        ("/", "dev", ["device-hostpath"]),
        ("/proc/1/root", "dev/nvidia0", ["device-hostpath"]),
        ("/proc/1/root/proc/self/root/dev", "nvidia0", ["device-hostpath"]),
        ("/proc/driver", "nvidia", []),
        ("/", "var/log", []),
        ("/", "run/docker.sock", ["runtime-socket"]),
        ("/dev", "shm", []),
        ("/dev", "", ["device-hostpath"]),
        ("/run", "containerd", ["runtime-socket"]),
        ("/run", "lock", []),
        ("/run", "cdi", ["plugin-dir-hostpath"]),
        ("/var/lib/kubelet", "device-plugins", ["plugin-dir-hostpath"]),
        ("/var/lib/kubelet", "pods", ["plugin-dir-hostpath"]),
        ("/var/lib/kubelet", "seccomp", []),
    ],
)
def test_a_sub_path_decides_which_part_is_mounted(
    path: str, sub_path: str, rules: list[str]
) -> None:
    assert rules_found(path, subPath=sub_path) == rules


@pytest.mark.parametrize(
    "path",
    [
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/var//run/./docker.sock/",
        "/run/containerd/containerd.sock",
        "/var/run/containerd",
        "/run/containerd/",
        "/run/k3s/containerd/containerd.sock",
        "/run/k3s",
        "/var/run/crio/crio.sock",
        "/run/podman/podman.sock",
        "/run/nri",
        "/var/run/cri-dockerd.sock",
        "/run",
        "/var/run",
        "/var/log/../run",
    ],
)
def test_a_runtime_socket_and_its_parents_are_reported(path: str) -> None:
    assert rules_found(path) == ["runtime-socket"]
    assert rules_found(path, readOnly=True) == ["runtime-socket"]
    assert rules_found(path, gpu=False) == []


@pytest.mark.parametrize(
    "path",
    ["/run/docker.sock2", "/run/containerd-debug", "/runtime", "/run/lock", "/srv/run/docker.sock"],
)
def test_a_sibling_is_no_socket(path: str) -> None:
    assert rules_found(path) == []


@pytest.mark.parametrize(
    "path",
    [
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet/device-plugins/",
        "/var/lib/kubelet//device-plugins/kubelet.sock",
        "/var/lib/kubelet/pod-resources",
        "/var/lib/kubelet",
        "/var/lib",
        "/var",
    ],
)
def test_a_kubelet_directory_and_its_parents_are_reported(path: str) -> None:
    assert rules_found(path, readOnly=True) == ["plugin-dir-hostpath"]
    assert rules_found(path, gpu=False) == []


@pytest.mark.parametrize("path", ["/etc/cdi", "/etc/cdi/nvidia.yaml", "/var/run/cdi/"])
def test_a_cdi_directory_matters_only_if_writable(path: str) -> None:
    assert rules_found(path) == ["plugin-dir-hostpath"]
    assert rules_found(path, readOnly=False) == ["plugin-dir-hostpath"]
    assert rules_found(path, readOnly=True) == []


@pytest.mark.parametrize(
    "path",
    [
        *("/var/lib/kubelet/pods", "/var/lib/kubelet/pki", "/etc/kubernetes/admin.conf"),
        *("/etc/kubernetes", "/etc"),
    ],
)
def test_secrets_matter_also_if_they_can_only_be_read(path: str) -> None:
    assert rules_found(path, readOnly=True) == ["plugin-dir-hostpath"]
    assert rules_found(path, gpu=False, readOnly=True) == []


@pytest.mark.parametrize(
    "path", ["/var/lib/kubelet/seccomp", "/var/lib/kubelet2", "/etc/cdi2", "/et"]
)
def test_a_sibling_is_no_such_directory(path: str) -> None:
    assert rules_found(path) == []


@pytest.mark.parametrize("path", [None, "", 7, [], {}, True])
def test_a_value_that_is_no_path_has_no_finding(path: Any) -> None:
    assert rules_found(path) == []


@pytest.mark.parametrize("mount", [None, 7, [], {"name": 7}, {"name": "host", "subPath": 7}])
def test_a_misshapen_mount_breaks_nothing(mount: Any) -> None:
    manifest = pod("/srv", gpu=True)
    manifest["spec"]["containers"][0]["volumeMounts"] = [mount, "x"]
    assert not check(manifest, RULES.restricted_to(FAMILY), CONTEXT).failures


def test_of_two_mounts_the_more_severe_decides() -> None:
    manifest = pod("/dev/nvidia0", gpu=False)
    container = manifest["spec"]["containers"][0]
    manifest["spec"]["containers"] = [
        container,
        {**container, "name": "strong", "securityContext": {"privileged": True}},
    ]
    (finding,) = check(manifest, RULES.restricted_to(FAMILY), CONTEXT).findings
    assert finding.action.name == "DENY"
    assert 'container "strong"' in finding.message
