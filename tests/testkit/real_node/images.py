"""Container images of a few files, made without a registry: archives that containerd imports."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Image(NamedTuple):
    """An image with the files and folders of `root`, by its full name."""

    name: str
    root: Path
    entrypoint: tuple[str, ...]
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""


def write_archive(images: Iterable[Image], target: Path) -> None:
    """Write images into an archive of Docker's format. Images with one root share its layer."""
    layers: dict[Path, bytes] = {}
    manifest: list[dict[str, Any]] = []
    with tarfile.open(target, "w") as archive:
        for image in images:
            if image.root not in layers:
                layers[image.root] = _layer(image.root)
                _add(archive, _layer_name(layers[image.root]), layers[image.root])
            layer = layers[image.root]
            config = json.dumps(_config(image, hashlib.sha256(layer).hexdigest())).encode()
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(archive, name, config)
            entry = {"Config": name, "RepoTags": [image.name], "Layers": [_layer_name(layer)]}
            manifest.append(entry)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _layer_name(layer: bytes) -> str:
    return f"{hashlib.sha256(layer).hexdigest()}/layer.tar"


def _layer(root: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for path in sorted(root.iterdir()):
            layer.add(path, path.name, filter=_of_root)
    return buffer.getvalue()


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _config(image: Image, layer: str) -> Mapping[str, Any]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": list(image.entrypoint),
            "Cmd": list(image.command),
            "Env": [f"{name}={value}" for name, value in image.env],
            "User": image.user,
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
    }


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
