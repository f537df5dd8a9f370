"""Runs a control plane until Ctrl-C, for manual use.

    python -m tests.testkit.control_plane.by_hand

It has simulated nodes, one of them with GPUs, and prints how to connect to it.
"""

from __future__ import annotations

import shlex
import signal
import sys

from tests.testkit.control_plane.build import programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.toolchain import BuildError

TEXT = """\
A control plane {version} runs at {url} until you stop it with Ctrl-C.

  export KUBECONFIG={kubeconfig}
  alias kubectl={kubectl}
  alias helm={helm}

It has two nodes, which exist only in name: gpu-1 with 8 GPUs and a taint, and cpu-1 without.
"""


def main() -> int:
    """Run from the command line; see the module's docstring."""
    stop = {signal.SIGINT, signal.SIGTERM}
    try:
        with ControlPlane(programs()) as plane:
            plane.gpu_node("gpu-1", labels={"nvidia.com/gpu.present": "true"})
            plane.gpu_node("cpu-1", gpus=0, taint=False, labels={"kubernetes.io/os": "linux"})
            sys.stdout.write(
                TEXT.format(
                    version=plane.programs.version,
                    url=plane.url,
                    kubeconfig=shlex.quote(str(plane.kubeconfig)),
                    kubectl=shlex.quote(str(plane.programs["kubectl"])),
                    helm=shlex.quote(str(plane.programs["helm4"])),
                )
            )
            sys.stdout.flush()
            signal.pthread_sigmask(signal.SIG_BLOCK, stop)
            signal.sigwait(stop)
    except KeyboardInterrupt:  # while it was starting
        return 130
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
