"""A pod on a GPU node reaches files by which the node decides who gets a GPU.

What it does
------------
Checks pods that request a GPU or select GPU nodes. Finds hostPath volumes that some container
mounts and that show, on any of the distributions that gpuward knows:

- the kubelet's directories `device-plugins`, `pod-resources`, `plugins` with the sockets of DRA
  drivers, and `plugins_registry`; its configuration and its static pods, such as
  `/etc/kubernetes/manifests`,
- the secrets of others: the kubelet's directory `pods`, and the credentials of the kubelet and of
  administrators, such as `/var/lib/kubelet/pki` and `/etc/kubernetes/admin.conf`,
- the sockets of systemd and of the system's D-Bus, `/run/systemd/private` and `/run/dbus`,
- programs that the node starts as root for pods: those of the network, such as `/opt/cni/bin`, and
  of FlexVolume, `/usr/libexec/kubernetes/kubelet-plugins/volume/exec`,
- the node's own programs and libraries, such as `/usr/bin`, `/usr/lib/x86_64-linux-gnu`, `/lib64`,
  `/opt/bin` and, on Container-Optimized OS, `/home/kubernetes/bin`,
- the programs and libraries of NVIDIA's driver, such as `/run/nvidia/driver/usr`,
  `/usr/local/nvidia` and, on GKE, `/home/kubernetes/bin/nvidia`,
- CDI directories (`/etc/cdi`, `/run/cdi`, `/var/cdi`), plugins of NRI (`/opt/nri/plugins`,
  `/etc/nri`) and OCI hooks (`/usr/share/containers/oci/hooks.d` and its like),
- the configuration of containerd, CRI-O, Docker, Kata Containers and of NVIDIA's container toolkit,
  the programs of all of them, and where they keep images and the files of containers, such as
  `/var/lib/containerd`,
- the arguments of the kubelet, such as `/etc/default/kubelet`, and the units of systemd,
- PCI devices in `/sys`, also by links such as `/sys/class/drm/card0/device`, and the control groups
  in `/sys/fs/cgroup`,
- the files by which HAMi, Volcano, Tencent's gpu-manager and koordinator limit shares on a node.

Paths inside these directories count too, and so do the directories above them, except `/` and the
root of the driver, which `device-hostpath` reports, and `/home`, which is mounted for what users
keep there. Read-only mounts are fine, except of directories with sockets or secrets, of
`pod-resources`, and of `/sys` and `/home/kubernetes`: the control groups and the programs are
mounted below these, and stay writable without `recursiveReadOnly: Enabled` (Kubernetes 1.31 and
newer).

Why it matters
--------------
A process that can write there can decide which GPUs other pods get, what the runtime mounts into
them, and which program runs as root beside every new container. Through the sockets in
`device-plugins` and `plugins` devices are allocated; who can connect can take the place of the
kubelet. In `plugins_registry` the kubelet looks for new plugins. From `manifests` it starts pods
that the API server never sees. In `pods` are the tokens of all pods on the node, and who has those
of an operator, or the kubelet's own, decides what runs there. By its sockets systemd starts any
program for root of a container.

By the files of a PCI device a program reads and writes the memory of the card, or takes it away
from its driver. With version 1 of control groups, a process of root leaves the group that denies it
devices, and opens the device files that it makes.

A process that changes a library or a program of the node runs as root there, as soon as root uses
it. A pod that only loads them mounts them with `readOnly: true`, as GKE's device plugin does;
manifests that Google publishes for GPUDirect leave it out.

`pod-resources` shows which pod has which device. Monitoring needs it, so run the exporter under a
service account that the profile lists as a component, or add an exception for it.

References
----------
- https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
- https://github.com/cncf-tags/container-device-interface
- https://github.com/containerd/nri
- containers/common, `pkg/hooks/docs/oci-hooks.5.md`
- systemd, `src/core/org.freedesktop.systemd1.conf`
- kubernetes/kubernetes, `pkg/volume/flexvolume/probe.go`
- GoogleCloudPlatform/container-engine-accelerators, `cmd/nvidia_gpu/nvidia_gpu.go`,
  `gpudirect-rdma/nccl-test.yaml`
- https://kubernetes.io/docs/concepts/storage/volumes/#recursive-read-only-mounts
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import display
from rules.base.traits import GPU_OR_NODE_CONSTRAINT, HOST_PATH
from rules.gpu.volumes import HostMount, containers_of, group_by_volume, host_mounts
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    Expression,
    all_of,
    any_of,
    choose,
    is_in,
    let,
    not_,
    text,
)
from rules.in_process.statement import CONTAINER, MOUNT, SUB_PATHS, Statement
from rules.placement.gpu_nodes import is_for_gpus
from rules.profile.platforms.node_paths import (
    CDI_DIRECTORIES,
    CREDENTIALS,
    DRIVER_DIRECTORIES,
    HOOK_DIRECTORIES,
    KUBELET_CONFIGURATION,
    KUBELET_FOLDERS,
    MOUNT_POINTS,
    NETWORK_PROGRAM_DIRECTORIES,
    PROGRAM_AND_LIBRARY_DIRECTORIES,
    RUNTIME_CONFIGURATION,
    RUNTIME_DATA_DIRECTORIES,
    RUNTIME_PROGRAMS,
    STATIC_POD_DIRECTORIES,
    SYSTEMD_SOCKETS,
    VOLUME_PROGRAM_DIRECTORIES,
    directories_up,
    in_run,
)
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

# A read-only mount does not keep a process from connecting to a socket.
EFFECTS_OF_READING = {
    **{
        f"{k}/device-plugins": "it reaches the sockets by which devices are allocated"
        for k in KUBELET_FOLDERS
    },
    **{f"{k}/pod-resources": "it learns which pod holds which device" for k in KUBELET_FOLDERS},
    **{
        f"{k}/plugins": "it reaches the sockets of drivers that prepare devices"
        for k in KUBELET_FOLDERS
    },
    **{
        f"{k}/pods": "it reads the secrets and the volumes of all pods on the node"
        for k in KUBELET_FOLDERS
    },
    **dict.fromkeys(CREDENTIALS, "it can take the place of the kubelet or of an administrator"),
    **dict.fromkeys(SYSTEMD_SOCKETS, "it can start any program as root of the node by systemd"),
}
# To see these does no harm, to change them does. Each effect with its paths.
_PATHS_BY_EFFECT = {
    "it can rewrite what the runtime injects as a device": CDI_DIRECTORIES,
    "it can register a driver of its own": [f"{k}/plugins_registry" for k in KUBELET_FOLDERS],
    "it can start any pod on the node, which no webhook evaluates": STATIC_POD_DIRECTORIES,
    "it can change what the kubelet allows": KUBELET_CONFIGURATION,
    # kubernetes/kubernetes pkg/kubelet/cm/dra/manager.go
    "it can change which claims the node takes for prepared": (
        *(f"{k}/dra_manager_state" for k in KUBELET_FOLDERS),
    ),
    "it can run a program of its own beside every new container": HOOK_DIRECTORIES,
    "it can run a program of its own as root of the node": (
        *(*NETWORK_PROGRAM_DIRECTORIES, *VOLUME_PROGRAM_DIRECTORIES),
    ),
    "it can change programs and libraries that the node or other pods run": (
        PROGRAM_AND_LIBRARY_DIRECTORIES
    ),
    "it can change the driver that the containers of all pods load": DRIVER_DIRECTORIES,
    "it can change the runtime by which containers are started": (
        *(*RUNTIME_CONFIGURATION, *RUNTIME_PROGRAMS),
    ),
    "it can change the images and the files of all containers": RUNTIME_DATA_DIRECTORIES,
    # Where units may stand: systemd.unit(5).
    "it can change how the kubelet and the runtime are started": (
        *("/etc/systemd/system", "/run/systemd/system"),
        *("/usr/lib/systemd/system", "/lib/systemd/system"),
    ),
    "it can use the memory of PCI devices, and take them away from their drivers": (
        *("/sys/bus/pci", "/sys/devices/pci*", "/sys/module/nvidia"),
    ),
    # Seen on Linux 6.18 with containerd's capabilities: a process of root that writes 0 into the
    # `cgroup.procs` of the root group of devices may open each device file that it makes.
    "it can leave its control group, and with version 1 of these open every device": (
        "/sys/fs/cgroup",
    ),
    "it can change what limits the shares of all pods on the node": (
        # Project-HAMi/HAMi charts/hami/values.yaml (libPath), and Volcano's device plugin.
        "/usr/local/vgpu",
        # tkestack/gpu-manager gpu-manager.yaml; koordinator-sh/koordinator pkg/koordlet.
        *("/etc/gpu-manager", *in_run("koordlet"), "/etc/runtime/hookserver.d"),
    ),
}
EFFECTS_OF_WRITING = {path: effect for effect, paths in _PATHS_BY_EFFECT.items() for path in paths}
EFFECTS_BY_PATH = {**EFFECTS_OF_READING, **EFFECTS_OF_WRITING}


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each volume that shows a container one of these directories."""
    mounts = [mount for mount in host_mounts(pod) if _revealed_directory(mount)]
    if mounts and is_for_gpus(pod):
        for group in group_by_volume(mounts):
            mount, directory = group[0], _revealed_directory(group[0])
            path, volume, effect = mount.path, mount.volume, EFFECTS_BY_PATH[directory]
            yield Finding(
                path=mount.field,
                key=mount.key,
                message=_message(mount.container, display(path), display(volume), effect),
                containers=containers_of(group),
                help=_advice(mount, directory),
            )


def _message(container: object, path: object, volume: object, effect: object) -> str:
    return f"{container} sees {path} of the node through the volume {volume}: {effect}"


# Directories of which a part is in EFFECTS_BY_PATH, with the first such part. Homes are mounted for
# what their owners keep there, and `device-hostpath` reports the root of the driver.
_FIRST_PATH_BELOW = {
    above: path for path in reversed(EFFECTS_BY_PATH) for above in directories_up(path)
}
for _above in ("/home", *in_run("nvidia/driver")):
    del _FIRST_PATH_BELOW[_above]
_FIRST_READABLE_PATH_BELOW = {
    above: path for path in reversed(EFFECTS_OF_READING) for above in directories_up(path)
}
# Directories above what is mounted below them, with that.
_MOUNT_POINT_BELOW = {
    above: point
    for point in MOUNT_POINTS
    for above in directories_up(point)
    if above not in (point, "/home")
}
_PCI_PREFIX = "/sys/devices/pci"
# The directories of PCI devices, and links into them, which the kubelet follows.
_PCI_DEVICE_PREFIXES = (
    *(_PCI_PREFIX, "/sys/class/drm/card", "/sys/class/drm/renderD", "/sys/class/accel/accel"),
    *("/sys/dev/char/226:", "/sys/dev/char/261:", "/sys/kernel/iommu_groups/"),
)


_ADVICE = "remove the volume and its mounts"
_ADVICE_TO_READ = f"{_ADVICE}, or mount it with readOnly: true"
_ADVICE_TO_MOUNT_POINTS = f"{_ADVICE_TO_READ} and recursiveReadOnly: Enabled"


def _revealed_directory(mount: HostMount) -> str:
    """The first directory that `mount` shows in whole or in part; empty if none, or for `/`."""
    known, above = (
        (EFFECTS_OF_READING, _FIRST_READABLE_PATH_BELOW)
        if mount.is_read_only
        else (EFFECTS_BY_PATH, _FIRST_PATH_BELOW)
    )
    if mount.path in above:
        return above[mount.path]
    if mount.is_read_only and not mount.is_recursive and mount.path in _MOUNT_POINT_BELOW:
        return _MOUNT_POINT_BELOW[mount.path]
    if not mount.is_read_only and mount.path.startswith(_PCI_DEVICE_PREFIXES):
        return f"{_PCI_PREFIX}*"
    return next((path for path in directories_up(mount.path) if path in known), "")


def _advice(mount: HostMount, directory: str) -> str:
    if directory not in EFFECTS_OF_WRITING:
        return _ADVICE
    return _ADVICE_TO_MOUNT_POINTS if mount.path in _MOUNT_POINT_BELOW else _ADVICE_TO_READ


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, m = CONTAINER, MOUNT
    directories = _revealed_directories_in_cel(m)
    directory = directories[0]
    effect = POLICY.effects[POLICY.effectByPath[directory]]
    advice = choose(
        (is_in(directory, POLICY.reachedDirectories), _ADVICE),
        (is_in(m.path, POLICY.aboveMountPoints), _ADVICE_TO_MOUNT_POINTS),
        otherwise=_ADVICE_TO_READ,
    )
    statement = Statement(
        "volume",
        where=all_of(OBJECT.isForGpus, directories.size() > 0),
        message=text(_message(c.text, m.shown, m.shownVolume, effect)),
        help=advice,
        facts=_facts(),
        leaves_out=SUB_PATHS,
    )
    return (statement,)


def _revealed_directories_in_cel(mount: Expression) -> Expression:
    """`_revealed_directory` of `mount`, with a slash at its end, in a list; empty if none is."""
    path = mount.path
    # Every directory ends with a slash here, and none is longer.
    longest = max(map(len, EFFECTS_BY_PATH)) + 1
    length = choose((path.size() < longest, path.size() + 1), otherwise=longest)
    head = (path + "/").substring(0, length)

    def above(directories: Expression) -> Expression:
        """Return those of `directories` that contain the path: of these the deepest is first."""
        return let(head, lambda head: directories.filter(lambda d: head.startsWith(d)))

    read = choose(
        (is_in(path, POLICY.aboveReached), [POLICY.aboveReached[path]]),
        (
            all_of(is_in(path, POLICY.aboveMountPoints), not_(mount.recursive)),
            [POLICY.aboveMountPoints[path]],
        ),
        otherwise=above(POLICY.reachedDirectories),
    )
    is_pci_device = any_of(*(path.startsWith(prefix) for prefix in _PCI_DEVICE_PREFIXES))
    return choose(
        (mount.readOnly, read),
        (is_in(path, POLICY.aboveKnown), [POLICY.aboveKnown[path]]),
        (is_pci_device, [f"{_PCI_PREFIX}*/"]),
        otherwise=above(POLICY.knownDirectories),
    )


def _facts() -> Mapping[str, Any]:
    effects = list(dict.fromkeys(EFFECTS_BY_PATH.values()))
    return {
        "aboveReached": _directories_above(_FIRST_READABLE_PATH_BELOW),
        "aboveMountPoints": _directories_above(_MOUNT_POINT_BELOW),
        "aboveKnown": _directories_above(_FIRST_PATH_BELOW),
        "reachedDirectories": [f"{d}/" for d in sorted(EFFECTS_OF_READING, key=len, reverse=True)],
        "knownDirectories": [f"{d}/" for d in sorted(EFFECTS_BY_PATH, key=len, reverse=True)],
        "effectByPath": {f"{path}/": effects.index(e) for path, e in EFFECTS_BY_PATH.items()},
        "effects": effects,
    }


def _directories_above(path_below: Mapping[str, str]) -> dict[str, str]:
    """Those that are no such path themselves: it is the deepest directory that contains it."""
    return {above: f"{path}/" for above, path in path_below.items() if above != path}


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(HOST_PATH, GPU_OR_NODE_CONSTRAINT),
    supersedes=("driver-library-hostpath",),
)
