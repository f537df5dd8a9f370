"""Runs a control plane until Ctrl-C, to be used by hand.

    python tests/controlplane/by_hand.py

It has a GPU node and another one, which exist only in name, and says how to reach it.
"""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# As a script it finds its own folder only, which is not where imports start.
sys.path.insert(0, str(HERE.parent))

from controlplane.build import programs  # noqa: E402
from controlplane.plane import ControlPlane  # noqa: E402
from controlplane.toolchain import BuildError  # noqa: E402

TEXT = """\
A control plane {version} runs at {url} until you stop it with Ctrl-C.

  export KUBECONFIG={kubeconfig}
  alias kubectl={kubectl}
  alias helm={helm}

It has two nodes, which exist only in name: gpu-1 with 8 GPUs and a taint, and cpu-1 without.
"""


def main() -> int:
    """Run from the command line; see the module's text."""
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
    except KeyboardInterrupt:  # before it was up
        return 130
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
