"""What tests of `workloads.discovery` share: the table of workloads, and what is in a manifest."""

from __future__ import annotations

import copy
from typing import Any

from kubeyaml import Chunk, read
from rules.base.json_patch import Path as Place
from rules.base.json_patch import pointer
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.workloads.discovery import MalformedField, find_subjects
from tests.testkit.paths import DATA

PROFILE = Profile("p")


def parsed(text: str) -> Any:
    """The value of a text."""
    document = read(Chunk(text))
    assert document is not None
    return document.value


_FILE = DATA / "workloads.yaml"
WORKLOADS: dict[str, Any] = parsed(_FILE.read_text(encoding="utf-8"))


def manifest_of(name: str) -> Any:
    """The manifest of a workload, to be changed at will."""
    return copy.deepcopy(WORKLOADS[name]["manifest"])


def pods_in(manifest: Any) -> list[Pod]:
    """The pods of a manifest in which everything can be read."""
    subjects = list(find_subjects(manifest, PROFILE))
    assert not [s.why for s in subjects if isinstance(s, MalformedField)]
    return [subject for subject in subjects if isinstance(subject, Pod)]


def unreadable_in(manifest: Any) -> list[str]:
    """What is said of things that cannot be read, each of which has a place of its own."""
    found = [s for s in find_subjects(manifest, PROFILE) if isinstance(s, MalformedField)]
    assert len({s.path for s in found}) == len(found)
    assert all(pointer(s.path).endswith(s.why.split(" should be ")[0]) for s in found)
    return [s.why for s in found]


def _steps(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node)
    return list(range(len(node))) if isinstance(node, list) else []


def places(node: Any, path: Place = ()) -> list[Place]:
    """Every place below `node`."""
    below = [(*path, step) for step in _steps(node)]
    return below + [inner for one in below for inner in places(node[one[-1]], one)]
