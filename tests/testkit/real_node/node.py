"""The real kubelet, containerd, runc and NVIDIA's container toolkit, as a node of a control plane.

No GPU is needed: the devices have NVIDIA's numbers, behind which there is no driver, and containers
open them only to see whether they may. A device plugin for tests hands them out.

This only runs in the namespaces of `isolation.py`. There everything has its usual place, such as
/var/lib/kubelet, and disappears with them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.testkit.container_runtime.node import GPUS, Settings, cdi_spec, toolkit_config
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.real_node.images import Image, write_archive
from tests.testkit.real_node.isolation import HOSTNAME, NODE_ADDRESS, SERVICES, is_isolated
from tests.testkit.real_node.programs import programs, show_devices

PAUSE = "gpuward.test/pause:1"
SHOW_DEVICES = "gpuward.test/show-devices:1"
RESOURCE = "nvidia.com/gpu"
API_SERVER_FLAGS = (
    "--kubelet-preferred-address-types=InternalIP",
    "--authorization-mode=Node",
    "--enable-admission-plugins=NodeRestriction",
)
"""The flags of an API server that has such a node, whose kubelet has the rights of a node."""
STATIC_PODS = Path("/run/static-pods")
_RESTARTS = 50
_CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
_KUBELET = Path("/var/lib/kubelet")
_PLUGINS = _KUBELET / "device-plugins"
_POD_NETWORK = "10.97.0.0/24"
MERGE = "application/merge-patch+json"
_CONTAINERD = """\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
address = "{socket}"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
enable_cdi = true
cdi_spec_dirs = ["{folder}/cdi"]
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{folder}/cni"]
conf_dir = "{folder}/cni-configuration"
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "nvidia"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
BinaryName = "{runtime}"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
"""


class RealNode:
    """A node with three GPUs in the cluster of `plane`, until the end of the block.

    Its containers run by NVIDIA's runtime, in mode `cdi`, unless their pod has another runtime
    class.
    """

    name = HOSTNAME

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        assert is_isolated(), "a node runs only in namespaces of its own"
        self.plane = plane
        self._programs = programs()
        self.folder = folder
        self._processes = Processes(folder)
        self._stack = ExitStack()
        self._offered: list[str] = []
        user = f"system:node:{self.name}"
        certificate = plane.authority.issue("node", common_name=user, groups=["system:nodes"])
        self._kubeconfig = plane.kubeconfig_with(certificate)
        self._environment = {"PATH": os.defpath, "XDG_CONFIG_HOME": str(folder / "config")}
        self.configure(Settings())

    def program(self, name: str) -> Path:
        """The file of a program of the node."""
        return self._programs[name]

    def configure(self, settings: Settings) -> None:
        """Set up NVIDIA's container toolkit; that holds for containers that start afterwards."""
        home = self.folder / "config" / "nvidia-container-runtime"
        home.mkdir(parents=True, exist_ok=True)
        runc, hook = self._programs["runc"], self._programs["nvidia-container-runtime-hook"]
        text = toolkit_config(settings, runc, home / "none", hook, self.folder)
        (home / "config.toml").write_text(text, encoding="utf-8")

    def offer(self, resources: Iterable[Mapping[str, Any]]) -> None:
        """Start the device plugin with these resources, as node-plugins/device_plugin.go has them.

        Of resources that are offered no more, the node has none.
        """
        if self._offered:
            self._processes.end("device-plugin")
            for name in self._offered:
                self.wait_for_resource(name, "0")
        offered = [{"folder": str(_PLUGINS), "unhealthy": [], **one} for one in resources]
        file = self.folder / "resources.json"
        file.write_text(json.dumps(offered), encoding="utf-8")
        for socket in _PLUGINS.glob("*_*.sock"):
            socket.unlink()
        self._start("device-plugin", "node-plugins", "device-plugin", str(file))
        self._offered = [one["name"] for one in offered]
        for one in offered:
            healthy = len(one["devices"]) - len(one["unhealthy"])
            self.wait_for_resource(one["name"], str(healthy))

    def start_driver(self, name: str, devices: Iterable[Mapping[str, Any]]) -> None:
        """Start a driver for claims with these devices of a ResourceSlice.

        Those are called `gpu-0` and so on, after the indices of the node's GPUs.
        """
        config = {
            "name": name,
            "node": self.name,
            "kubeconfig": str(self.plane.kubeconfig),
            "registry": str(_KUBELET / "plugins_registry"),
            "folder": str(_KUBELET / "plugins" / name),
            "devices": list(devices),
        }
        file = self.folder / "driver.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        self._start("dra-driver", "node-plugins", "dra-driver", str(file))

    def label(self, labels: Mapping[str, str]) -> None:
        """Give the node more labels."""
        self.change({"metadata": {"labels": dict(labels)}})

    def change(self, body: Mapping[str, Any]) -> None:
        """Change the Node by a merge patch."""
        path = f"/api/v1/nodes/{self.name}"
        done = self.plane.request("PATCH", path, body, content_type=MERGE)
        assert done.status == HTTPStatus.OK, done

    def wait_for_resource(self, name: str, amount: str) -> None:
        """Wait until the node has this amount of a resource for pods."""
        eventually(
            lambda: self.object["status"].get("allocatable", {}).get(name, "0") == amount,
            what=f"the node has {amount} of {name}",
        )

    @property
    def object(self) -> Any:
        """The Node; empty before the kubelet has created it."""
        answer = self.plane.request("GET", f"/api/v1/nodes/{self.name}")
        return answer.body if answer.status == HTTPStatus.OK else {}

    def remove_pods(self, namespace: str) -> None:
        """Delete the pods of a namespace, and wait until they are gone."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        self.plane.request("DELETE", path, {"gracePeriodSeconds": 0})
        eventually(
            lambda: not self.plane.request("GET", path).body["items"], what="the pods are gone"
        )

    def wait_for_event(self, namespace: str, pod: str, text: str) -> None:
        """Wait until an event of a pod contains the text."""
        path = f"/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name%3D{pod}"

        def is_said() -> bool:
            events = self.plane.request("GET", path).body["items"]
            assert any(text in event["message"] for event in events), events
            return True

        eventually(is_said, what=f"{pod}: {text}")

    def import_images(self, images: Iterable[Image]) -> None:
        """Make images known to containerd, as if they had been pulled."""
        archive = self.folder / "images.tar"
        write_archive(images, archive)
        self.ctr("images", "import", str(archive))
        archive.unlink()

    def ctr(self, *arguments: str) -> str:
        """The output of containerd's command line, in the namespace of Kubernetes."""
        command = [str(self._programs["ctr"]), f"--address={_CONTAINERD_SOCKET}", "-n", "k8s.io"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return done.stdout

    def process(self, status: Mapping[str, Any]) -> int:
        """The process of the container with this status."""
        container = status["containerID"].removeprefix("containerd://")
        for line in self.ctr("tasks", "list").splitlines():
            if line.startswith(container):
                return int(line.split()[1])
        raise AssertionError(f"no process of {container}")

    def start_containerd(self) -> None:
        """Start containerd, and wait until it answers."""
        self._start("containerd", "containerd", f"--config={self.folder / 'containerd.toml'}")
        eventually(_CONTAINERD_SOCKET.exists, what="containerd listens")

    def start_kubelet(self) -> None:
        """Start the kubelet, and wait until it says that the node is ready.

        It ends if containerd listens and cannot answer yet; then it is started again, as systemd
        does.
        """
        started, restarts = datetime.now(UTC), iter(range(_RESTARTS))
        self._start_kubelet()

        def is_ready() -> bool:
            has_ended = self._processes.exit_status("kubelet") is not None
            if has_ended and next(restarts, None) is not None:
                self._start_kubelet()
            return self._is_ready(started)

        eventually(is_ready, what="the node is ready")

    def _start_kubelet(self) -> None:
        self._start(
            "kubelet",
            "kubelet",
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={self._kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={NODE_ADDRESS}",
            "--v=2",
        )

    def end(self, program: str) -> None:
        """End a program, such as `kubelet` or `containerd`. Containers go on."""
        self._processes.end(program)

    def log(self, program: str) -> str:
        """The output of a program of the node."""
        return self._processes.log(program).read_text(encoding="utf-8", errors="replace")

    def _is_ready(self, since: datetime) -> bool:
        """Return whether the kubelet has said so `since` then: an earlier one has as well."""
        self._processes.check("containerd", "kubelet")
        conditions = self.object.get("status", {}).get("conditions", [])
        return any(
            one["type"] == "Ready"
            and one["status"] == "True"
            and datetime.fromisoformat(one["lastHeartbeatTime"]) > since
            for one in conditions
        )

    def _start(self, name: str, program: str, *arguments: str) -> None:
        command = [str(self._programs[program]), *arguments]
        folders = ":".join(str(folder) for folder in self._programs.folders)
        environment = {**self._environment, "PATH": f"{folders}:{os.environ['PATH']}"}
        self._processes.start(name, command, environment)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # What still runs then ends with the namespaces.
            stack.callback(self._processes.stop)
            self._write_configuration()
            self.start_containerd()
            self.import_images(own_images(self.folder))
            self.start_kubelet()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        self.plane.request("DELETE", f"/api/v1/nodes/{self.name}")

    def _write_configuration(self) -> None:
        folder = self.folder
        STATIC_PODS.mkdir()
        for name in ("cdi", "cni", "cni-configuration"):
            (folder / name).mkdir()
        for name in ("ptp", "loopback", "host-local"):
            (folder / "cni" / name).symlink_to(self._programs[name])
        text = json.dumps(cdi_spec(Path("/dev")))
        (folder / "cdi" / "nvidia.json").write_text(text, encoding="utf-8")
        network = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": _POD_NETWORK}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                        "dataDir": "/run/cni",
                    },
                }
            ],
        }
        file = folder / "cni-configuration" / "pods.conflist"
        file.write_text(json.dumps(network), encoding="utf-8")
        containerd = _CONTAINERD.format(
            socket=_CONTAINERD_SOCKET,
            pause=PAUSE,
            folder=folder,
            runtime=self._programs["nvidia-container-runtime"],
            runc=self._programs["runc"],
        )
        (folder / "containerd.toml").write_text(containerd, encoding="utf-8")
        text = json.dumps(_kubelet_configuration())
        (folder / "kubelet.json").write_text(text, encoding="utf-8")


def own_images(folder: Path) -> list[Image]:
    """The images of the sandboxes and of a container that shows its devices."""
    root = show_devices_root(folder)
    return [
        Image(PAUSE, root, ("/pause",)),
        Image(SHOW_DEVICES, root, ("/show-devices",), ("mounts",)),
    ]


def show_devices_root(folder: Path) -> Path:
    """A root folder with the program that shows devices, which waits if it is called `pause`."""
    root = folder / "show-devices-root"
    if not root.exists():
        root.mkdir()
        for name in ("show-devices", "pause"):
            shutil.copy2(show_devices(), root / name)
    return root


def _kubelet_configuration() -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{_CONTAINERD_SOCKET}",
        "staticPodPath": str(STATIC_PODS),
        # The network is its own, so no other machine can ask it.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "readOnlyPort": 0,
        "clusterDNS": [f"{SERVICES}.10"],
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "maxPods": 250,
        "serializeImagePulls": False,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        # Tests wait for what has changed.
        "syncFrequency": "1s",
        "nodeStatusUpdateFrequency": "1s",
    }


def all_gpus(strategy: str = "envvar") -> dict[str, Any]:
    """The GPUs of the node as a resource: see `RealNode.offer`."""
    return {"name": RESOURCE, "strategy": strategy, "devices": list(GPUS.values())}
