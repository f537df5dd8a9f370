"""A pod on a GPU node reaches the directories by which device plugins hand out GPUs.

What it does
------------
Checks pods that request a GPU or select GPU nodes. Finds hostPath volumes that some container
mounts and that show the kubelet's directories `device-plugins`, `pod-resources` or
`plugins_registry`, its static pods (`/etc/kubernetes/manifests`), or a CDI directory (`/etc/cdi`,
`/run/cdi`). Paths inside these directories count too, and so do the directories above them, except
`/`, which `device-hostpath` reports. Read-only mounts are fine, except of `device-plugins` and
`pod-resources`.

Why it matters
--------------
`device-plugins` contains the sockets by which devices are registered and allocated. The CDI
directories describe what each device adds to a container. A process that can write there can
decide which GPUs other pods get, and what the runtime mounts into them. In `plugins_registry` the
kubelet looks for new plugins. From `manifests` it starts pods that the API server never sees.

`pod-resources` shows which pod has which device. Monitoring needs it, so run the exporter under a
service account that the profile lists as a component, or add an exception for it.

References
----------
- https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
- https://github.com/cncf-tags/container-device-interface
"""

from rules.base.json_values import display
from rules.base.traits import GPU_OR_NODE_CONSTRAINT, HOST_PATH
from rules.gpu.components import advice_for_agents
from rules.gpu.volumes import HostMount, by_volume, containers_of, host_mounts
from rules.placement.gpu_nodes import is_for_gpus
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

KUBELET_DIRS = {
    "/var/lib/kubelet/device-plugins": "it reaches the sockets by which devices are allocated",
    "/var/lib/kubelet/pod-resources": "it learns which pod holds which device",
}
# To see these does no harm, to change them does.
WRITTEN_DIRS = {
    **dict.fromkeys(
        ("/etc/cdi", "/run/cdi", "/var/run/cdi"),
        "it can rewrite what the runtime injects as a device",
    ),
    "/var/lib/kubelet/plugins_registry": "it can register a device plugin of its own",
    "/etc/kubernetes/manifests": "it can start any pod on the node, which no webhook evaluates",
}
MEANING = {**KUBELET_DIRS, **WRITTEN_DIRS}


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each volume that shows a container one of these directories."""
    mounts = [mount for mount in host_mounts(pod) if _revealed(mount)]
    if mounts and is_for_gpus(pod):
        for group in by_volume(mounts):
            mount, directory = group[0], _revealed(group[0])
            message = (
                f"{mount.container} sees {display(mount.path)} of the node through the volume "
                f"{display(mount.volume)}: {MEANING[directory]}"
            )
            yield Finding(
                path=mount.field,
                key=mount.key,
                message=message,
                containers=containers_of(group),
                help=_advice(directory) + advice_for_agents(pod),
            )


def _revealed(mount: HostMount) -> str:
    """The first directory that `mount` shows in whole or in part; empty if none, or for `/`."""
    path = mount.path
    for directory in KUBELET_DIRS if mount.read_only else MEANING:
        inside = path == directory or path.startswith(f"{directory}/")
        if inside or (path != "/" and directory.startswith(f"{path}/")):
            return directory
    return ""


def _advice(directory: str) -> str:
    advice = "remove the volume and its mounts"
    return f"{advice}, or mount it with readOnly: true" if directory in WRITTEN_DIRS else advice


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(HOST_PATH, GPU_OR_NODE_CONSTRAINT)
)
