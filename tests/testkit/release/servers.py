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
    """An OCI registry with TLS, by its HOST:PORT, and the file with its certificate authority."""

    address: str
    authority: Path


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
    authority = Authority(folder)
    address = f"localhost:{free_port()}"
    pair = authority.issue("registry", hosts=["localhost", "127.0.0.1"])
    configuration = folder / "registry.yaml"
    configuration.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder / 'storage'}}}}}\n"
        f"http:\n  addr: {address}\n"
        f"  tls: {{certificate: {pair.certificate}, key: {pair.key}}}\n"
    )
    command = [str(program(REGISTRY)), "serve", str(configuration)]
    processes.start("registry", command, {"OTEL_TRACES_EXPORTER": "none"})
    host, port = address.split(":")
    eventually(
        lambda: _listens(processes, "registry", host, int(port)), what="the registry answers"
    )
    return Registry(address, authority.file)


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
