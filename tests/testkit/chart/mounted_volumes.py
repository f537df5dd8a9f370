"""The volumes of a pod with Secrets or ConfigMaps, as folders that a kubelet keeps up to date."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path
from typing import Any

from tests.testkit.control_plane.cluster import Cluster

PLURALS = {"secret": ("secrets", "secretName"), "configMap": ("configmaps", "name")}


class Volume:
    """A volume of a pod in `namespace`, as a folder: a Secret, a ConfigMap or several ConfigMaps.

    An update swaps a symbolic link, so that all files change at once. As with a kubelet, the
    folder stays as it is if the object or a key that `items` names is missing. A source that is
    `optional` then has no files.
    """

    def __init__(self, plane: Cluster, namespace: str, volume: Any, folder: Path) -> None:
        self.folder = folder
        self._plane = plane
        given = volume["projected"]["sources"] if "projected" in volume else [volume]
        self._sources = [_path_and_source(namespace, source) for source in given]
        self._written: dict[str, bytes] | None = None
        self._versions = itertools.count(1)

    def sync(self) -> bool:
        """Update the folder; returns whether the volume could be mounted."""
        files = self._files()
        if files is not None and files != self._written:
            self._write(files)
        return files is not None

    def _files(self) -> dict[str, bytes] | None:
        files: dict[str, bytes] = {}
        for path, source in self._sources:
            answer = self._plane.request("GET", path)
            wanted = {item["path"]: item["key"] for item in source.get("items", ())}
            found = _contents(answer.body) if answer.status == 200 else None
            if found is None or not found.keys() >= set(wanted.values()):
                if not source.get("optional"):
                    return None
                continue
            files |= {path: found[key] for path, key in wanted.items()} if wanted else found
        return files

    def _write(self, files: dict[str, bytes]) -> None:
        version = self.folder / f"..{next(self._versions)}"
        version.mkdir(parents=True)
        for name, content in files.items():
            (version / name).write_bytes(content)
            link = self.folder / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        new_link = self.folder / "..data_tmp"
        new_link.symlink_to(version.name)
        new_link.replace(self.folder / "..data")
        for link in self.folder.iterdir():
            if link.is_symlink() and not link.exists():
                link.unlink()
        self._written = files


def pod_volumes(plane: Cluster, pod: Any, folder: Path) -> dict[str, Volume]:
    """The volumes of a pod by their names, each in a folder of its own.

    That of the service account's token is left out: `PodProcess` passes a kubeconfig.
    """
    namespace = pod["metadata"]["namespace"]
    return {
        volume["name"]: Volume(plane, namespace, volume, folder / volume["name"])
        for volume in pod["spec"].get("volumes", [])
        if not any(
            "serviceAccountToken" in s for s in volume.get("projected", {}).get("sources", ())
        )
    }


def _path_and_source(namespace: str, volume: Any) -> tuple[str, Any]:
    """Return where the API server has the object of a volume, and the source in the volume."""
    (kind,) = PLURALS.keys() & volume.keys()
    plural, name_key = PLURALS[kind]
    source = volume[kind]
    return f"/api/v1/namespaces/{namespace}/{plural}/{source[name_key]}", source


def _contents(body: Any) -> dict[str, bytes]:
    data = body.get("data") or {}
    if body["kind"] == "ConfigMap":
        return {key: text.encode() for key, text in data.items()}
    return {key: base64.b64decode(text) for key, text in data.items()}
