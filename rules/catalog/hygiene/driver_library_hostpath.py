"""A GPU container mounts the libraries of the driver from its node.

What it does
------------
Finds hostPath volumes that show a container which requests a GPU the libraries of NVIDIA's driver
on the node: `libcuda.so…`, `libnvidia-….so…` and the like in any directory, `/usr/lib/nvidia…`,
`/usr/local/nvidia` and, on GKE, `/home/kubernetes/bin/nvidia`. The root of a driver in a container,
`/run/nvidia/driver`, is the matter of `device-hostpath`.

Containers without a GPU are not reported, such as the daemons of Google's GPUDirect beside the
program.

Why it matters
--------------
NVIDIA's container toolkit adds the libraries of the node's own driver to every container with a
GPU, and on GKE the device plugin mounts their directory. The path of a node's library belongs to
one version of the driver and one image of the node: after an upgrade it may be gone, or mix two
versions in one program.

References
----------
- https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/
- https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#cuda
"""

import re

from rules.base.json_values import display
from rules.base.traits import GPU, HOST_PATH
from rules.gpu.devices import requests_gpu
from rules.gpu.volumes import containers_of, group_by_volume, host_mounts
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

DIRECTORIES = ("/usr/local/nvidia/", "/home/kubernetes/bin/nvidia/")
# Anchored, without nested repetition: linear.
_LIBRARY_PATTERN = re.compile(
    r"/usr/lib(?:64|32)?/(?:[a-z0-9_-]+-linux-gnu/)?nvidia(?:[-/0-9].*)?"
    r"|.*/lib(?:cuda|nvidia-[a-z0-9-]+|nvcuvid)\.so[.0-9]*"
)


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each volume that shows a GPU container libraries of the driver."""
    mounts = [m for m in host_mounts(pod) if _is_library(m.path) and requests_gpu(m.container)]
    for group in group_by_volume(mounts):
        mount = group[0]
        yield Finding(
            path=mount.field,
            key=mount.key,
            message=f"{mount.container} asks for a GPU and mounts {display(mount.path)} of the "
            "node: containers with a GPU get the driver's libraries without it, and other nodes "
            "may have another driver there",
            containers=containers_of(group),
            help="remove the volume and its mounts",
        )


def _is_library(path: str) -> bool:
    return f"{path}/".startswith(DIRECTORIES) or _LIBRARY_PATTERN.fullmatch(path) is not None


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(HOST_PATH, GPU))
