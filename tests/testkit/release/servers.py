"""The servers on which a rehearsal publishes: a package index and an OCI registry, on loopback."""

from __future__ import annotations

import os
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from tests.testkit.control_plane.pki import Authority
from tests.testkit.control_plane.processes import Processes, eventually, free_port
from tests.testkit.release.programs import REGISTRY, program


class PackageIndex(NamedTuple):
    """An index of Python packages that has the files in `folder` and refers to no other index."""

    url: str
    folder: Path


class Registry(NamedTuple):
    """An OCI registry with TLS: HOST:PORT, its certificate authority, and what it has, as files."""

    address: str
    authority: Path
    storage: Path


def start_package_index(processes: Processes, folder: Path) -> PackageIndex:
    """Start pypiserver for the files in `folder`, which may come later."""
    port = free_port()
    server = Path(sys.executable).with_name("pypi-server")
    options = ["--disable-fallback", "--backend=simple-dir"]
    options += ["--interface=127.0.0.1", f"--port={port}"]
    command = [str(server), "run", *options, str(folder)]
    processes.start("index", command, {"PATH": os.environ["PATH"]})
    url = f"http://127.0.0.1:{port}/simple/"
    eventually(lambda: _answers(processes, "index", url), what="the package index answers")
    return PackageIndex(url, folder)


def start_registry(processes: Processes, folder: Path) -> Registry:
    """Start the registry of the project Distribution, which stores in `folder`."""
    return serve_as(processes, folder, "localhost", free_port(), folder / "storage")


def serve_as(processes: Processes, folder: Path, host: str, port: int, storage: Path) -> Registry:
    """Start a registry that is called `host` and keeps what it has in `storage`."""
    authority = Authority(folder)
    address = f"{host}:{port}"
    pair = authority.issue("registry", hosts=[host, "127.0.0.1"])
    configuration = folder / "registry.yaml"
    configuration.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {storage}}}}}\n"
        f"http:\n  addr: {address}\n"
        f"  tls: {{certificate: {pair.certificate}, key: {pair.key}}}\n"
    )
    command = [str(program(REGISTRY)), "serve", str(configuration)]
    processes.start("registry", command, {"OTEL_TRACES_EXPORTER": "none"})
    eventually(lambda: _listens(processes, "registry", host, port), what="the registry answers")
    return Registry(address, authority.file, storage)


def _answers(processes: Processes, name: str, url: str) -> bool:
    processes.check(name)
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  our own server
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


def _listens(processes: Processes, name: str, host: str, port: int) -> bool:
    processes.check(name)
    try:
        with socket.create_connection((host, port), timeout=10):
            return True
    except OSError:
        return False
