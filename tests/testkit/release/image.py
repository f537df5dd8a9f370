"""Builds the image for both processors by its Dockerfile, with buildah and without a daemon.

The two base images are not packages, so packages of the same release of Debian replace them: for
the stages that build, Python with pip and a shell; for the last stage, Python and its libraries
without any program beside it. The instructions are those of the Dockerfile. For the other processor
they run under QEMU.

It wants root, Linux with the file system binfmt_misc, and Debian's packages of `PACKAGES`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.testkit.paths import ROOT
from tests.testkit.release.servers import PackageIndex, Registry

PACKAGES = ("buildah", "mmdebstrap", "qemu-user-static", "skopeo")
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
PYTHON = "3.13"
REPOSITORY = "gpuward/gpuward"
_RELEASE = "trixie"
_LAST = "base-files,python3.13-minimal,libpython3.13-stdlib"
_TOOLS = "dash,coreutils,findutils,ca-certificates,python3-pip,python-is-python3"
_BUILDER = f"{_LAST},{_TOOLS}"
# What the installation scripts of the packages would do, which are not run.
_CONFIGURE = (
    "cat /usr/share/ca-certificates/mozilla/*.crt > /etc/ssl/certs/ca-certificates.crt "
    f"&& rm /usr/lib/python{PYTHON}/EXTERNALLY-MANAGED "
    # The image of Python has pip and no other package.
    "&& find /usr/lib/python3/dist-packages -mindepth 1 -maxdepth 1 ! -name 'pip*' -exec rm -r {} +"
)
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
# The first bytes of programs for arm64, and which bits of them count.
# Source: QEMU, scripts/qemu-binfmt-conf.sh
_ARM64_MAGIC = r"\x7fELF\x02\x01\x01" + r"\x00" * 9 + r"\x02\x00\xb7\x00"
_ARM64_MASK = r"\xff" * 7 + r"\x00" + r"\xff" * 8 + r"\xfe\xff\xff\xff"


class Labels(NamedTuple):
    """The labels that the release workflow gives the image: version, commit, and its time."""

    version: str
    revision: str
    created: str
    epoch: str


def obstacle() -> str:
    """Return why no image can be built here; empty if it can."""
    if sys.platform != "linux" or shutil.which("apt-get") is None:
        return "the base images are made from Debian's packages"
    programs = ("buildah", "mmdebstrap", "qemu-aarch64-static", "skopeo")
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        return f"there is no {', no '.join(missing)}: apt-get install {' '.join(PACKAGES)}"
    if subprocess.run(["id", "-u"], capture_output=True, check=True).stdout != b"0\n":
        return "only root can run the instructions of the Dockerfile"
    return ""


class Builder:
    """Builds images in a store of its own below `folder`."""

    def __init__(self, folder: Path, index: PackageIndex) -> None:
        self._folder = folder
        storage = [f"--root={folder / 'store'}", f"--runroot={folder / 'run'}"]
        self._buildah = ["buildah", "--storage-driver=vfs", *storage]
        self._settings = folder / "pip.conf"
        self._settings.write_text(f"[global]\nindex-url = {index.url}\n")
        with emulation():
            for architecture in ARCHITECTURES:
                for name, packages in (("builder", _BUILDER), ("last", _LAST)):
                    self._make_base(f"{name}-{architecture}", packages, architecture)

    def build(self, source: Path, architecture: str, labels: Labels, name: str) -> None:
        """Build the Dockerfile in `source` for a processor, and call the image `name`."""
        text = (source / "Dockerfile").read_text(encoding="utf-8")
        text, builders = re.subn(
            r"(?m)^FROM python:\S+", f"FROM localhost/builder-{architecture}", text
        )
        text, lasts = re.subn(r"(?m)^FROM gcr\.io/\S+", f"FROM localhost/last-{architecture}", text)
        assert (builders, lasts) == (1, 1)
        file = self._folder / f"Dockerfile-{architecture}"
        file.write_text(text, encoding="utf-8")
        values = {"VERSION": labels.version, "REVISION": labels.revision, "CREATED": labels.created}
        options = [f"--build-arg={key}={value}" for key, value in values.items()]
        options += [f"--timestamp={labels.epoch}", f"--platform=linux/{architecture}"]
        options += ["--isolation=chroot", "--layers=false", f"--file={file}", f"--tag={name}"]
        with emulation():
            self.run("bud", *options, f"--volume={self._settings}:/etc/pip.conf:ro", str(source))

    def push(self, names: dict[str, str], registry: Registry, repository: str) -> str:
        """Push one image for each processor as one index, without a tag; its digest."""
        self.run("manifest", "create", repository)
        for architecture, name in names.items():
            arguments = ("--arch", architecture, "--os", "linux", repository)
            self.run("manifest", "add", *arguments, f"containers-storage:{self._stored(name)}")
        file = self._folder / "digest"
        target = f"docker://{registry.address}/{repository}:untagged"
        certificates = self._folder / "certificates"
        certificates.mkdir(exist_ok=True)
        shutil.copy(registry.authority, certificates / "ca.crt")
        options = ("--all", f"--cert-dir={certificates}", f"--digestfile={file}", "--format=oci")
        self.run("manifest", "push", *options, repository, target)
        return file.read_text(encoding="utf-8").strip()

    def tag(self, digest: str, registry: Registry, repository: str, version: str) -> None:
        """Give what was pushed its tag."""
        target = f"docker://{registry.address}/{repository}"
        certificates = self._folder / "certificates"
        options = [f"--{end}-cert-dir={certificates}" for end in ("src", "dest")]
        options += ["--all", "--preserve-digests"]
        _run("skopeo", "copy", *options, f"{target}@{digest}", f"{target}:{version}")

    def start(self, image: str, *arguments: str) -> str:
        """Run the image on a read-only root file system, by its entry point; return its output."""
        with emulation():
            container = self.run("from", "--pull-never", image).strip()
            options = ("--isolation=chroot", "--cap-drop=all", container, "--")
            entry = (f"/usr/bin/python{PYTHON}", "-m", "gpuward")
            try:
                return self.run("run", *options, *entry, *arguments)
            finally:
                self.run("rm", container)

    def run(self, *arguments: str) -> str:
        """A command of buildah that must succeed; its output."""
        return _run(*self._buildah, *arguments)

    def _stored(self, name: str) -> str:
        return name if "/" in name else f"localhost/{name}"

    def _make_base(self, name: str, packages: str, architecture: str) -> None:
        archive = self._folder / f"{name}.tar"
        options = ["--variant=extract", f"--architectures={architecture}", f"--include={packages}"]
        _run("mmdebstrap", "--quiet", *options, _RELEASE, str(archive), _packages_of_debian())
        file = self._folder / f"Dockerfile-{name}"
        configure = f"RUN {_CONFIGURE}\n" if packages == _BUILDER else ""
        file.write_text(f"FROM scratch\nADD {archive.name} /\n{configure}")
        options = [f"--platform=linux/{architecture}", f"--file={file}", f"--tag={name}"]
        self.run("bud", "--isolation=chroot", *options, str(self._folder))
        archive.unlink()


@contextmanager
def emulation() -> Iterator[None]:
    """Run programs for arm64 by QEMU; what the machine did not do before is undone."""
    if (_BINFMT / "qemu-aarch64").exists():
        yield
        return
    mounted = not (_BINFMT / "register").exists()
    if mounted:
        _run("mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT))
    # F: the kernel opens QEMU now, so that it need not be in the image.
    rule = f":qemu-aarch64:M::{_ARM64_MAGIC}:{_ARM64_MASK}:/usr/bin/qemu-aarch64-static:F"
    (_BINFMT / "register").write_text(rule)
    try:
        yield
    finally:
        (_BINFMT / "qemu-aarch64").write_text("-1")
        if mounted:
            _run("umount", str(_BINFMT))


def _packages_of_debian() -> str:
    """The line of sources.list for the mirror that this machine uses."""
    formats = _run("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages")
    site = next(line for line in formats.splitlines() if "security" not in line)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    return f"deb [signed-by={keys}] {site} {_RELEASE} main"


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
