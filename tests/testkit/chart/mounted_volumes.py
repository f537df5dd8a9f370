"""What a kubelet makes of a pod's Secret and ConfigMap volumes: folders that follow them."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path
from typing import Any

from tests.testkit.control_plane.cluster import Cluster

PLURALS = {"secret": ("secrets", "secretName"), "configMap": ("configmaps", "name")}


class Volume:
    """A volume of a pod in `namespace`, as a folder.

    A link is swapped, so that all files change at one stroke. As with a kubelet, what cannot be
    mounted leaves the folder as it was: no object, or one without a key that `items` names.
    """

    def __init__(self, plane: Cluster, namespace: str, volume: Any, folder: Path) -> None:
        (kind,) = PLURALS.keys() & volume.keys()
        plural, named = PLURALS[kind]
        self.folder = folder
        self._plane = plane
        self._source = volume[kind]
        self._path = f"/api/v1/namespaces/{namespace}/{plural}/{self._source[named]}"
        self._shown: dict[str, bytes] | None = None
        self._versions = itertools.count(1)

    def sync(self) -> bool:
        """Bring the folder up to date; whether that could be done."""
        files = self._files()
        if files is not None and files != self._shown:
            self._show(files)
        return files is not None

    def _files(self) -> dict[str, bytes] | None:
        answer = self._plane.request("GET", self._path)
        if answer.status != 200:
            return None
        found = _contents(answer.body)
        if "items" not in self._source:
            return found
        wanted = {item["path"]: item["key"] for item in self._source["items"]}
        if not found.keys() >= set(wanted.values()):
            return None
        return {path: found[key] for path, key in wanted.items()}

    def _show(self, files: dict[str, bytes]) -> None:
        fresh = self.folder / f"..{next(self._versions)}"
        fresh.mkdir(parents=True)
        for name, content in files.items():
            (fresh / name).write_bytes(content)
            link = self.folder / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        swapped = self.folder / "..data_tmp"
        swapped.symlink_to(fresh.name)
        swapped.replace(self.folder / "..data")
        for link in self.folder.iterdir():
            if link.is_symlink() and not link.exists():
                link.unlink()
        self._shown = files


def mounted(plane: Cluster, pod: Any, folder: Path) -> dict[str, Volume]:
    """The volumes of a pod by their names, each in a folder of its own.

    Its token is none of them: who plays the kubelet has another way to hand it over.
    """
    namespace = pod["metadata"]["namespace"]
    return {
        volume["name"]: Volume(plane, namespace, volume, folder / volume["name"])
        for volume in pod["spec"].get("volumes", [])
        if "projected" not in volume
    }


def _contents(body: Any) -> dict[str, bytes]:
    data = body.get("data") or {}
    if body["kind"] == "ConfigMap":
        return {key: text.encode() for key, text in data.items()}
    return {key: base64.b64decode(text) for key, text in data.items()}
