"""Builds the kubelet, containerd and what they need for the tests, in the control plane's cache.

    python -m tests.testkit.real_node.programs

builds what is missing. That needs Go, a C compiler and the headers of libseccomp, and no root.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.testkit.container_runtime.programs import RUNC as RUNC_ALONE
from tests.testkit.container_runtime.programs import SHOW_DEVICES, TOOLKITS
from tests.testkit.control_plane.build import Programs, build_programs
from tests.testkit.control_plane.sources import Source, kubernetes
from tests.testkit.control_plane.toolchain import BuildError

HERE = Path(__file__).resolve().parent
WHAT = "node programs"
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
CONTAINERD = Source(
    "containerd",
    {name: f"{_CONTAINERD}/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
    duration="three minutes",
    home=HERE,
)
_CNI = "github.com/containernetworking/plugins/plugins"
CNI = Source(
    "cni",
    {
        "ptp": f"{_CNI}/main/ptp",
        "loopback": f"{_CNI}/main/loopback",
        "host-local": f"{_CNI}/ipam/host-local",
    },
    duration="half a minute",
    home=HERE,
)
# The kubelet asks for a seccomp profile of every pod.
RUNC = RUNC_ALONE._replace(name="runc-seccomp", flags=("-tags=seccomp",), module=RUNC_ALONE.name)
PLUGINS = Source("node-plugins", {"node-plugins": "."}, duration="a minute", home=HERE)
SHIM_CLIENT = Source("shim-client", {"shim-client": "."}, duration="some seconds", home=HERE)
TOOLKIT = TOOLKITS[max(TOOLKITS)]
"""The newest release of NVIDIA's container toolkit."""


def kubelet() -> Source:
    """The kubelet of the release to test, from the module of the control plane."""
    release = kubernetes()
    return release._replace(
        name="kubelet",
        packages={"kubelet": "k8s.io/kubernetes/cmd/kubelet"},
        duration="three minutes",
        module=release.name,
    )


def programs() -> Programs:
    """The programs of a node; built if necessary."""
    try:
        return build_programs(kubelet(), CONTAINERD, CNI, RUNC, PLUGINS, TOOLKIT)
    except BuildError as error:
        raise BuildError(error.cause, WHAT) from error


def show_devices() -> Path:
    """The program that shows the devices of a container; built if necessary."""
    return build_programs(SHOW_DEVICES)["show-devices"]


def shim_client() -> Path:
    """The program that asks containerd's shims for a process; built if necessary."""
    return build_programs(SHIM_CLIENT)["shim-client"]


def main() -> int:
    """Run from the command line; see the module's docstring."""
    try:
        programs()
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
