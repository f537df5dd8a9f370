"""Runs a control plane with a real node, and a shell in which kubectl and helm reach it.

    make node

ends and removes everything when the shell ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.real_node.isolation import SERVICES
from tests.testkit.real_node.node import API_SERVER_FLAGS, SHOW_DEVICES, RealNode, all_gpus

_WELCOME = f"""\
A control plane with the node {RealNode.name}, which has three GPUs without a driver. The image
{SHOW_DEVICES} shows the devices of its container. `exit` ends everything. Try:

  kubectl run all --image={SHOW_DEVICES} --restart=Never --env=NVIDIA_VISIBLE_DEVICES=all
  kubectl logs all

"""


def main() -> int:
    """Run until the shell ends; its exit status."""
    with (
        # There it disappears with the namespaces, also after `kill -9`.
        tempfile.TemporaryDirectory(prefix="gpuward-node-", dir="/run") as folder,
        ControlPlane(services=SERVICES, api_server_flags=API_SERVER_FLAGS) as plane,
        RealNode(plane, Path(folder)) as node,
    ):
        node.offer([all_gpus()])
        sys.stdout.write(_WELCOME)
        sys.stdout.flush()
        programs = ":".join(str(path) for path in plane.programs.folders)
        variables = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(plane.kubeconfig),
        }
        shell = [os.environ.get("SHELL", "/bin/sh")]
        return subprocess.run(shell, env={**os.environ, **variables}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
