"""Runs a command in namespaces of its own, in which a node can run, and leaves nothing behind.

    python -m tests.testkit.real_node.isolation COMMAND…

The command has its own processes, network, mounts, control groups and devices: what it starts ends
with it, and what it mounts or writes below /run, /var/lib and /var/log disappears. That wants root.
Other files are those of the machine.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.testkit.container_runtime import cleanup
from tests.testkit.container_runtime.node import DEVICE_MAJOR, DEVICES

ISOLATED = "GPUWARD_ISOLATED"
"""The variable that says to the command that it has its own namespaces."""
SERVICES = "10.96.0"
"""The first three numbers of the addresses of Services."""
NODE_ADDRESS = "192.0.2.1"
HOSTNAME = "gpu-node-1"
COMMAND = (sys.executable, "-m", "tests.testkit.real_node.isolation")
_ENTER, _INSIDE = "--enter", "--inside"
_NAMESPACES = ("--net", "--mount", "--pid", "--ipc", "--uts")
_TEMPORARY = ("/run", "/var/lib", "/var/log", "/dev")
_CGROUPS = Path("/sys/fs/cgroup")
# Without them runc and the kubelet cannot do what pods ask for.
_CONTROLLERS = ("cpu", "memory", "pids")
_COMMON_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "kmsg": (1, 11),
    "tty": (5, 0),
}


def is_isolated() -> bool:
    """Return whether this process runs in such namespaces."""
    return ISOLATED in os.environ


def obstacle() -> str:
    """Return why nothing can be isolated on this machine; empty if it can."""
    if sys.platform != "linux" or os.geteuid():
        return "only root can run a node, on Linux"
    if why := _obstacle_of_control_groups():
        return why
    probe = ["unshare", *_NAMESPACES, "--cgroup", "--fork", "--mount-proc", "true"]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"unshare: {error}"
    return done.stderr.strip()


def main(command: list[str]) -> int:
    """Run the command; its exit status."""
    if not command:
        sys.exit(__doc__)
    if why := obstacle():
        sys.exit(why)
    group = f"gpuward-node-{os.getpid()}"
    folder = tempfile.mkdtemp(prefix="gpuward-node-")
    missing = _missing_controllers(_CGROUPS) if _is_version_2() else []
    # It removes the control groups too when this process is killed.
    watch = subprocess.Popen(
        [sys.executable, "-I", "-S", cleanup.__file__, group, folder, *missing],
        stdin=subprocess.PIPE,
        process_group=0,
    )
    unshare = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
    own = [*COMMAND, _ENTER, group]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command gets it too
    done = subprocess.run(
        [*unshare, *own, *command],
        check=False,
        preexec_fn=lambda: _enter_control_groups(group),
    )
    assert watch.stdin is not None
    watch.stdin.close()
    return watch.wait() or done.returncode


def _hierarchies() -> Iterator[tuple[Path, str]]:
    """Yield where each hierarchy of control groups is mounted, and its type."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        words = line.split()
        kind = words[words.index("-") + 1]
        if kind in ("cgroup", "cgroup2"):
            yield Path(words[4]), kind


def _is_version_2() -> bool:
    """Return whether there is one hierarchy, of version 2.

    Beside version 1 it has no controllers.
    """
    return list(_hierarchies()) == [(_CGROUPS, "cgroup2")]


def _missing_controllers(group: Path) -> list[str]:
    """The controllers that the group does not pass on to those in it."""
    passed_on = (group / "cgroup.subtree_control").read_text().split()
    return [name for name in _CONTROLLERS if name not in passed_on]


def _obstacle_of_control_groups() -> str:
    kinds = [kind for _, kind in _hierarchies()]
    if not _is_version_2():
        return "" if "cgroup" in kinds else f"no control groups are mounted at {_CGROUPS}"
    missing = _missing_controllers(_CGROUPS)
    available = (_CGROUPS / "cgroup.controllers").read_text().split()
    # Only the topmost group, which has no type, may have processes and pass controllers on.
    is_topmost = not (_CGROUPS / "cgroup.type").exists()
    if missing and not (is_topmost and set(missing) <= set(available)):
        return f"the control group of this container passes no {', '.join(missing)} on"
    return ""


def _enter_control_groups(name: str) -> None:
    for root, kind in _hierarchies():
        group = root / name
        if _is_version_2():
            _pass_controllers_on(root)
            group.mkdir()
            _pass_controllers_on(group)
            group /= "outside"  # a group that passes controllers on has no processes
        group.mkdir()
        if kind == "cgroup" and (root / "cpuset.cpus").exists():
            for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group
                (group / file).write_text((root / file).read_text())
        _move_to(group)


def _pass_controllers_on(group: Path) -> None:
    for name in _missing_controllers(group):
        (group / "cgroup.subtree_control").write_text(f"+{name}")


def _move_to(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")  # this process


def enter(group: str, command: list[str]) -> None:
    """Make the control groups of this process, the first one in the namespaces, the roots."""
    if _is_version_2():
        node = _CGROUPS / group / "node"
        node.mkdir()
        _move_to(node)
    arguments = ["unshare", "--cgroup", *COMMAND, _INSIDE, *command]
    os.execvp(arguments[0], arguments)  # noqa: S606  as above


def inside(command: list[str]) -> int:
    """Prepare the namespaces and run the command; this is still the first process in them."""
    _mount("sysfs", "/sys")
    _mount_control_groups()
    for folder in _TEMPORARY:
        _mount("tmpfs", folder, "mode=755")
    _make_devices()
    _configure_network()
    socket.sethostname(HOSTNAME)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    started = subprocess.Popen(
        command,
        env={**os.environ, ISOLATED: "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  no threads
    )
    while True:  # also of processes whose parents have ended
        process, status = os.wait()
        if process == started.pid:
            return os.waitstatus_to_exitcode(status)


def _mount(kind: str, folder: str, options: str = "") -> None:
    with_options = ["-o", options] if options else []
    # Otherwise the first mount of all makes /run/mount on the machine, before it has its own /run.
    command = ["mount", "--no-mtab", "-t", kind, *with_options, kind, folder]
    subprocess.run(command, check=True)


def _mount_control_groups() -> None:
    """Mount what was mounted, so that this process's groups are the roots."""
    if _is_version_2():
        _mount("cgroup2", str(_CGROUPS))
        tests = _CGROUPS / "tests"
        tests.mkdir()
        _move_to(tests)
        _pass_controllers_on(_CGROUPS)
        return
    _mount("tmpfs", str(_CGROUPS), "mode=755")
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, _ = line.split(":", 2)
        if not controllers:
            continue  # the unified hierarchy, which has no controllers here
        folder = _CGROUPS / controllers.removeprefix("name=")
        folder.mkdir()
        named = f"none,{controllers}" if controllers.startswith("name=") else controllers
        _mount("cgroup", str(folder), named)


def _make_devices() -> None:
    devices = Path("/dev")
    for folder in ("pts", "shm", "mqueue", "infiniband", "char"):
        (devices / folder).mkdir()
    _mount("devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=620")
    _mount("tmpfs", "/dev/shm")  # noqa: S108  its own
    _mount("mqueue", "/dev/mqueue")
    (devices / "ptmx").symlink_to("pts/ptmx")
    (devices / "fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (devices / name).symlink_to(f"/proc/self/fd/{number}")
    numbers = {name: (DEVICE_MAJOR, minor) for minor, name in DEVICES.items()}
    for name, (major, minor) in {**_COMMON_DEVICES, **numbers}.items():
        os.mknod(devices / name, stat.S_IFCHR, os.makedev(major, minor))
        (devices / name).chmod(0o666)
        (devices / "char" / f"{major}:{minor}").symlink_to(f"../{name}")


def _configure_network() -> None:
    """Give the loopback interface the addresses of Services and of the node."""
    _set_address("lo", "127.0.0.1", "255.0.0.0")
    _set_address("lo:1", f"{SERVICES}.1", "255.255.255.0")
    _set_address("lo:2", NODE_ADDRESS, "255.255.255.255")


def _set_address(interface: str, address: str, mask: str) -> None:
    set_flags, set_address, set_mask, up = 0x8914, 0x8916, 0x891C, 0x1
    name = interface.encode().ljust(16, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for request, value in ((set_address, address), (set_mask, mask)):
            packed = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(any_socket, request, name + packed)
        fcntl.ioctl(any_socket, set_flags, name + struct.pack("H14x", up))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == [_ENTER]:
        enter(arguments[1], arguments[2:])
    if arguments[:1] == [_INSIDE]:
        sys.exit(inside(arguments[1:]))
    sys.exit(main(arguments))
