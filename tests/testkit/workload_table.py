"""The table of workload kinds, and functions that find pods in a manifest, for several tests."""

from __future__ import annotations

import copy
from typing import Any

from kubeyaml import Chunk, read
from rules.base.json_values import Path as Place
from rules.base.json_values import pointer
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.workloads.discovery import find_subjects
from rules.workloads.pod_search import MalformedField
from tests.testkit.paths import DATA

PROFILE = Profile("p")


def parsed(text: str) -> Any:
    """The value of a YAML text."""
    document = read(Chunk(text))
    assert document is not None
    return document.value


_FILE = DATA / "workloads.yaml"
WORKLOADS: dict[str, Any] = parsed(_FILE.read_text(encoding="utf-8"))


def manifest_of(name: str) -> Any:
    """A copy of the manifest of a workload, which the caller may change."""
    return copy.deepcopy(WORKLOADS[name]["manifest"])


def pods_in(manifest: Any) -> list[Pod]:
    """The pods of a manifest without malformed fields."""
    subjects = list(find_subjects(manifest, PROFILE))
    assert not [s.why for s in subjects if isinstance(s, MalformedField)]
    return [subject for subject in subjects if isinstance(subject, Pod)]


def unreadable_in(manifest: Any) -> list[str]:
    """The messages about the malformed fields of a manifest; no field has two."""
    found = [s for s in find_subjects(manifest, PROFILE) if isinstance(s, MalformedField)]
    assert len({s.path for s in found}) == len(found)
    assert all(pointer(s.path).endswith(s.why.split(" should be ")[0]) for s in found)
    return [s.why for s in found]


def _steps(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node)
    return list(range(len(node))) if isinstance(node, list) else []


def places(node: Any, path: Place = ()) -> list[Place]:
    """The path of every value below `node`."""
    below = [(*path, step) for step in _steps(node)]
    return below + [inner for one in below for inner in places(node[one[-1]], one)]
