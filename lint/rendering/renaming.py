"""How kustomizations rename objects: by `namePrefix` and `nameSuffix`."""

from __future__ import annotations

import os
from typing import NamedTuple

from sources.rendering.kustomizations import Kustomization

_MAX_LENGTH = 253  # of a name in Kubernetes
_MAX_RENAMINGS = 100
# kustomize leaves the names of these as they are
_FIXED = ("APIService", "CustomResourceDefinition", "Namespace")


class Renaming(NamedTuple):
    """What is put around a name."""

    prefix: str = ""
    suffix: str = ""

    def rename(self, kind: str, name: str) -> str:
        """The name of the object after it is rendered."""
        return name if kind in _FIXED else f"{self.prefix}{name}{self.suffix}"

    def may_give(self, rendered: str) -> bool:
        """Whether an object may be called `rendered` afterwards."""
        is_long = len(rendered) > len(self.prefix) + len(self.suffix)
        return is_long and rendered.startswith(self.prefix) and rendered.endswith(self.suffix)

    def strip(self, rendered: str) -> str:
        """The name in the files of what is called `rendered` afterwards."""
        return rendered.removeprefix(self.prefix).removesuffix(self.suffix)


def renamings(parts: tuple[Kustomization, ...]) -> dict[str, list[Renaming]]:
    """How the first of `parts` renames the objects of each part, by the file of the part.

    A part that is included several times has several renamings. Beyond the bounds there are none:
    then the objects are not recognised in the rendering.
    """
    folders = {os.path.realpath(part.folder): part for part in parts}
    found: dict[str, list[Renaming]] = {part.file: [] for part in parts}
    waiting = [(parts[0], Renaming())]
    for part, outer in waiting:
        own = Renaming(outer.prefix + part.prefix, part.suffix + outer.suffix)
        known = found[part.file]
        is_long = len(own.prefix) + len(own.suffix) > _MAX_LENGTH
        if is_long or own in known or len(known) == _MAX_RENAMINGS:
            continue
        known.append(own)
        included = (folders.get(os.path.realpath(folder)) for folder in part.folders)
        waiting.extend((inner, own) for inner in included if inner)
    return found
