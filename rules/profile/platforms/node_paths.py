"""The directories of a node that belong to its kubelet and its container runtime.

This is the one table of them, for every rule about paths of the node.
"""

from collections.abc import Iterator


def in_run(*names: str) -> tuple[str, ...]:
    """The paths of `names` in `/run`, and by the link `/var/run` that leads there."""
    return tuple(f"{run}/{name}" for run in ("/run", "/var/run") for name in names)


def directories_up(path: str) -> Iterator[str]:
    """`path` and the directories above it, without `/`."""
    while path not in ("", "/"):
        yield path
        path = path.rpartition("/")[0]


# k0s and MicroK8s have their own (k0sproject/k0s pkg/constant, canonical/microk8s
# microk8s-resources/default-args/kubelet).
KUBELET_FOLDERS = (
    *("/var/lib/kubelet", "/var/lib/k0s/kubelet"),
    "/var/snap/microk8s/common/var/lib/kubelet",
)
# The directories for CDI files: of every runtime, and where Talos is told to look, whose /etc
# is read-only.
CDI_DIRECTORIES = ("/etc/cdi", *in_run("cdi"), "/var/cdi")

# Where runtimes keep what they need while containers run: the sockets by which they are ruled,
# those of the processes that watch over each container (containerd's shims, in
# /run/containerd/s; conmon; Kata's), and the files of running containers. Who reaches one of these
# sockets runs programs as root of the node.
RUNTIME_STATE_DIRECTORIES = (
    *in_run(
        # containerd, also that of Docker; cri-dockerd and the kubelet's own before it.
        *("containerd", "docker", "docker.sock", "cri-dockerd.sock", "dockershim.sock"),
        # CRI-O and Podman (containers/storage docs/containers-storage.conf.5.md, cri-o
        # docs/crio.conf.5.md); iSulad.
        *("crio", "containers/storage", "podman", "libpod", "isulad", "isulad.sock"),
        # What these start: runc, crun, gVisor, Kata Containers.
        *("runc", "crun", "runsc", "vc", "kata", "kata-containers"),
        "nri",
        # k3s and RKE2 (k3s-io/k3s pkg/agent/config), k0s (docs/runtime.md).
        *("k3s", "k0s"),
        # Bottlerocket's second containerd, and the API of the system, which starts containers.
        *("host-containerd", "api.sock"),
        "buildkit",  # moby/buildkit util/appdefaults: its daemon runs the steps of any build
    ),
    "/var/lib/k0s/run",  # of older versions of k0s
    "/var/snap/microk8s/common/run",  # canonical/microk8s microk8s-resources/default-args
    "/system/run",  # Talos' own containerd, and its machined
)
# Where they keep images, and the files of containers.
RUNTIME_DATA_DIRECTORIES = (
    *("/var/lib/containerd", "/var/lib/docker", "/var/lib/containers", "/var/lib/crio"),
    *(f"/var/lib/rancher/{name}/agent/containerd" for name in ("k3s", "rke2")),
    *("/var/lib/k0s/containerd", "/var/snap/microk8s/common/var/lib/containerd"),
    *("/var/lib/host-containerd", "/var/lib/isulad"),
)
RUNTIME_CONFIGURATION = (
    *("/etc/containerd", "/etc/crio", "/etc/docker", "/etc/nvidia-container-runtime"),
    # The variables of the service that writes CDI files (NVIDIA/nvidia-container-toolkit
    # deployments/systemd/nvidia-cdi-refresh.service).
    "/etc/nvidia-container-toolkit",
    *(f"/var/lib/rancher/{name}/agent/etc/containerd" for name in ("k3s", "rke2")),
    *("/etc/k0s/containerd.toml", "/etc/k0s/containerd.d", "/var/snap/microk8s/current/args"),
    "/etc/cri",  # Talos
)
RUNTIME_PROGRAMS = (
    # The programs of k3s, RKE2 and k0s; what containerd installs besides (containerd docs/ops.md);
    # Kata Containers (kata-containers/kata-containers docs/Limitations.md, utils).
    *("/var/lib/rancher/k3s/data", "/var/lib/rancher/rke2/data", "/var/lib/k0s/bin"),
    *("/opt/containerd", "/opt/kata", "/etc/kata-containers"),
    "/usr/share/defaults/kata-containers",
    # NVIDIA/gpu-operator assets/state-container-toolkit.
    *("/usr/local/nvidia/toolkit", *in_run("nvidia/toolkit")),
)
# Where a node keeps what root runs on it, the kubelet and the runtime among them, and what these
# programs load (file-hierarchy(7)).
PROGRAM_AND_LIBRARY_DIRECTORIES = (
    *("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"),
    *("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"),
    *("/lib", "/lib32", "/lib64", "/usr/libexec"),
    # Flatcar, whose /usr is read-only; Container-Optimized OS.
    *("/opt/bin", "/home/kubernetes/bin"),
)
# What is mounted on a node below other directories: a mount of one of these that is read-only
# leaves it writable, unless it is so recursively (Kubernetes, "Recursive read-only mounts"). On
# Container-Optimized OS the programs are mounted on themselves (kubernetes/kubernetes
# cluster/gce/gci/node.yaml).
MOUNT_POINTS = ("/sys/fs/cgroup", "/home/kubernetes/bin")
# /etc/containers and its like: containers/common, oci-hooks(5); containerd/nri README.md.
HOOK_DIRECTORIES = (
    *("/opt/nri/plugins", "/etc/nri"),
    *("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"),
    *in_run("containers/oci/hooks.d"),
)
# The programs of the network, which a runtime starts for every new pod: containerd
# docs/cri/config.md, cri-o docs/crio.conf.5.md.
NETWORK_PROGRAM_DIRECTORIES = ("/opt/cni/bin", "/usr/libexec/cni")
# Programs of FlexVolume, which the kubelet starts as soon as they are there (kubernetes/kubernetes
# pkg/volume/flexvolume/probe.go): the default, and those of GKE and AKS (rook/rook
# Documentation/flexvolume.md, version 1.1).
VOLUME_PROGRAM_DIRECTORIES = (
    "/usr/libexec/kubernetes/kubelet-plugins/volume/exec",
    *("/home/kubernetes/flexvolume", "/etc/kubernetes/volumeplugins"),
)
# What is in the root of NVIDIA's driver (NVIDIA/gpu-operator assets/state-driver), and where it is
# installed outside of one: on GKE (GoogleCloudPlatform/container-engine-accelerators
# cmd/nvidia_gpu), and as many manifests mount it.
DRIVER_DIRECTORIES = (
    *in_run(*(f"nvidia/driver/{name}" for name in ("bin", "etc", "lib", "lib64", "sbin", "usr"))),
    *("/home/kubernetes/bin/nvidia", "/usr/local/nvidia"),
)
# Root may start any unit through them: systemd src/core/org.freedesktop.systemd1.conf.
SYSTEMD_SOCKETS = in_run("dbus", "systemd/private")
STATIC_POD_DIRECTORIES = (
    "/etc/kubernetes/manifests",
    # k3s-io/k3s pkg/agent/config/config.go, rancher/rke2 pkg/rke2.
    *(f"/var/lib/rancher/{name}/agent/pod-manifests" for name in ("k3s", "rke2")),
)
# By which a kubelet, or an administrator, shows API servers who they are: kubernetes/kubernetes
# cmd/kubeadm/app/constants; awslabs/amazon-eks-ami, and others, have the file kubeconfig.
CREDENTIALS = (
    *(f"{folder}/{name}" for folder in KUBELET_FOLDERS for name in ("pki", "kubeconfig")),
    *(f"/etc/kubernetes/{name}.conf" for name in ("kubelet", "bootstrap-kubelet")),
    *(f"/etc/kubernetes/{name}" for name in ("admin.conf", "super-admin.conf", "pki")),
)
# The files with the kubelet's arguments: kubernetes/kubernetes cmd/kubeadm/app/constants.
KUBELET_CONFIGURATION = (
    *(f"{folder}/config.yaml" for folder in KUBELET_FOLDERS),
    "/etc/kubernetes/kubelet",
    *(f"{folder}/kubeadm-flags.env" for folder in KUBELET_FOLDERS),
    *("/etc/default/kubelet", "/etc/sysconfig/kubelet"),
    *("/etc/rancher/k3s", "/etc/rancher/rke2"),
)
