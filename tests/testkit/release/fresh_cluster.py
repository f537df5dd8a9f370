"""Installs a release on a new cluster with a real node, by the addresses that users have.

    python -m tests.testkit.release.fresh_cluster STORAGE COMMAND

runs in the namespaces of `real_node.isolation`. `STORAGE` is the folder of a registry that has
chart and image. It is served as ghcr.io, with a certificate that programs trust, because
`/etc/hosts` and the file of the trusted authorities have another content there. There is no other
network: containerd pulls the image from that registry, as helm pulls the chart. `COMMAND` is run
by bash and installs the chart in mode `deny`. The output is a line of JSON: what kubectl says about
a pod that takes all GPUs, and the images of gpuward's pods.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.paths import ROOT
from tests.testkit.real_node.isolation import SERVICES, is_isolated
from tests.testkit.real_node.node import API_SERVER_FLAGS, RealNode, all_gpus
from tests.testkit.real_node.service_proxy import ServiceProxy
from tests.testkit.release.chart import helm_environment
from tests.testkit.release.servers import serve_as

REGISTRY = "ghcr.io"
NAMESPACE = "gpuward-system"
_TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")
_BYPASS = ROOT / "examples" / "bypass.yaml"


def main(arguments: list[str]) -> int:
    """Install, and ask the cluster for a bypass; the exit status."""
    storage, command = Path(arguments[0]), " ".join(arguments[1:])
    assert is_isolated(), "this changes files of the machine"
    with ExitStack() as stack:
        # There it disappears with the namespaces.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/run")))
        processes = Processes(folder)
        stack.callback(processes.stop)
        _replace(Path("/etc/hosts"), f"127.0.0.1 localhost {REGISTRY}\n", folder)
        registry = serve_as(processes, folder, REGISTRY, 443, storage)
        _replace(_TRUSTED, registry.authority.read_text(encoding="utf-8"), folder)
        plane = stack.enter_context(
            ControlPlane(services=SERVICES, api_server_flags=API_SERVER_FLAGS)
        )
        node = stack.enter_context(RealNode(plane, folder))
        node.offer([all_gpus()])
        stack.enter_context(ServiceProxy(plane))
        environment = helm_environment(folder / "home", registry, plane.programs)
        subprocess.run(
            ["bash", "-e", "-c", command],
            env={**environment, "KUBECONFIG": str(plane.kubeconfig)},
            stdout=sys.stderr,
            check=True,
        )

        plane.kubectl("create", "namespace", "research")  # of the examples

        def refusal() -> str:
            options = ("--dry-run=server", f"--filename={_BYPASS}")
            done = plane.kubectl("create", *options, check=False)
            assert "denied the request" in done.stderr, done
            return done.stderr

        said = eventually(refusal, what="the webhook refuses a bypass")
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        images = {
            status["imageID"]
            for pod in plane.request("GET", path).body["items"]
            for status in pod["status"]["containerStatuses"]
        }
        sys.stdout.write(json.dumps({"refusal": said, "images": sorted(images)}) + "\n")
    return 0


def _replace(file: Path, text: str, folder: Path) -> None:
    """Let a file of the machine have another content in these namespaces."""
    own = folder / file.name
    own.write_text(text, encoding="utf-8")
    subprocess.run(["mount", "--bind", own, file], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
