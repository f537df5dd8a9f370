"""Runs a control plane and the pods of the chart until Ctrl-C, for manual use.

    python -m tests.testkit.chart.by_hand

It prints how to connect to it. `docs/tour.md` says what can be done with it.
"""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.testkit.chart.fixtures import may_listen
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.chart.service_proxies import PORT, ServiceProxies
from tests.testkit.control_plane.build import programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.toolchain import BuildError

TEXT = """\
A control plane {version} runs at {url} until you stop it with Ctrl-C.
In another shell:

  export KUBECONFIG={kubeconfig}
  export PATH={bin}:$PATH

The nodes cpu-1 and cpu-2 run gpuward's pods, as processes of this machine; all other pods, and the
node gpu-1 with 8 GPUs and a taint, exist only in name. See docs/tour.md.
"""
NO_PORT = """\
Only root may listen at port 443, the port of gpuward's Service. The API server will not reach
gpuward's pods.
"""


def main() -> int:
    """Run from the command line; see the module's docstring."""
    stop = {signal.SIGINT, signal.SIGTERM}
    try:
        with ExitStack() as stack:
            plane = start(stack)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuward-bin-")))
            for name, program in {"kubectl": "kubectl", "helm": "helm4"}.items():
                (folder / name).symlink_to(plane.programs[program])
            text = TEXT.format(
                version=plane.programs.version,
                url=plane.url,
                kubeconfig=shlex.quote(str(plane.kubeconfig)),
                bin=shlex.quote(str(folder)),
            )
            sys.stdout.write(text)
            sys.stdout.flush()
            signal.pthread_sigmask(signal.SIG_BLOCK, stop)
            signal.sigwait(stop)
    except KeyboardInterrupt:  # while it was starting
        return 130
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def start(stack: ExitStack) -> ControlPlane:
    """A control plane with nodes that run gpuward's pods, and one with GPUs, until `stack` ends."""
    plane = stack.enter_context(ControlPlane(programs()))
    plane.gpu_node("gpu-1", labels={"nvidia.com/gpu.present": "true"})
    services = ServiceProxies(plane)
    if may_listen(PORT):
        stack.enter_context(services)
    else:
        sys.stderr.write(NO_PORT)
    for node in ("cpu-1", "cpu-2"):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuward-node-")))
        kubelet = Kubelet(plane, folder, node=node, as_in_cluster=True, proxies=services.forwarders)
        stack.enter_context(kubelet)
    return plane


if __name__ == "__main__":
    raise SystemExit(main())
