"""Records for the tables of vendors' requirements, and the versions of programs in them."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

Component: TypeAlias = Literal[
    "kubernetes", "kube-scheduler", "ack-ai-installer", "cgpu", "driver", "containerd", "docker"
]
"""A component with a version. `driver` is NVIDIA's; `ack-ai-installer` is the chart for sharing."""


class SourcePage(NamedTuple):
    """The page that a table is from.

    - `update_date`: when the page says that it was last updated (ISO 8601); empty if it does not.
    - `url`: empty if the page is known by its title alone.
    - `read_date`: when the page was read; empty if it is known only by what others quote of it, or
      if the date was not noted.
    """

    publisher: str
    title: str
    update_date: str = ""
    url: str = ""
    read_date: str = ""


class MinimumVersion(NamedTuple):
    """The oldest version of a component with which a feature works.

    `is_exclusive` says that the version itself is still too old. `cluster_version` is the version
    of Kubernetes (`1.28`) for which the minimum holds, empty if it holds for all.
    """

    component: Component
    version: str
    is_exclusive: bool = False
    cluster_version: str = ""


class Advisory(NamedTuple):
    """A vendor's bulletin about vulnerabilities.

    `fixed_version` is the oldest version without them, and `backported_versions` are the oldest
    ones of earlier series, such as `1.10.2`.
    """

    source: SourcePage
    vulnerabilities: tuple[str, ...]
    fixed_version: str
    backported_versions: tuple[str, ...] = ()


class Program(NamedTuple):
    """A program of a GPU platform whose version the tag of its image states.

    `images` are the last parts of repositories, whatever the registry. `releases_url` is where its
    versions are listed. Without `advisories` no bulletin about it is known.
    """

    title: str
    images: tuple[str, ...]
    releases_url: str
    advisories: tuple[Advisory, ...] = ()


class OperatingSystem(NamedTuple):
    """An operating system with its versions; `words` are its names in a node's `osImage`."""

    name: str
    words: tuple[str, ...]
    versions: tuple[str, ...]


class Feature(NamedTuple):
    """A feature of a GPU platform, and what it requires.

    An empty field means that the page says nothing about it. `regions` are the names of the regions
    by their identifiers. `card_families` are the first letters of the models. `max_pods_per_card`
    is 0 if there is no limit. Clusters from before `clusters_since` (ISO 8601) need a newer
    scheduler, which does not come by itself.
    """

    name: str
    title: str
    source: SourcePage
    minimums: tuple[MinimumVersion, ...] = ()
    operating_systems: tuple[OperatingSystem, ...] = ()
    regions: Mapping[str, str] = MappingProxyType({})
    card_families: tuple[str, ...] = ()
    max_pods_per_card: int = 0
    clusters_since: str = ""


class Card(NamedTuple):
    """A model of card; `memory` are the sizes in which it is made, in GB, the smallest first.

    Together, the sources name every size.
    """

    model: str
    memory: tuple[int, ...]
    sources: tuple[SourcePage, ...]


# Nodes, images and charts write one version as `1.26.3`, `v1.26.3`, `containerd://1.26.3` or
# `1.26.3-eks-1`. ACK's builds of the scheduler have a build number behind a word:
# `v1.26.3-aliyun-4.1-a520c096`.

_MAX_CHARACTERS = 200
_VERSION_PATTERN = re.compile(
    r"(?:[a-z-]{1,20}://)?v?"
    r"(?P<numbers>[0-9]{1,6}(?:\.[0-9]{1,6}){0,5})"
    r"(?P<preview>[-.~]?(?:rc|beta|alpha|preview)[-.0-9]{0,10})?"
    r"(?:-(?P<word>aliyun|ack)[-.](?P<build>[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}))?"
    r"(?:[-+~_. ].*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)


class Version(NamedTuple):
    """A version: its numbers, whether it precedes its release, and the build of a vendor."""

    numbers: tuple[int, ...]
    is_preview: bool = False
    vendor: str = ""
    build: tuple[int, ...] = ()


def parse_version(text: str) -> Version | None:
    """The version that `text` states, or None if it states none."""
    found = _VERSION_PATTERN.fullmatch(text.strip()) if len(text) <= _MAX_CHARACTERS else None
    if found is None:
        return None
    build = found["build"] or ""
    return Version(
        _numbers(found["numbers"]),
        bool(found["preview"]),
        (found["word"] or "").lower(),
        _numbers(build) if build else (),
    )


def compare_versions(version: Version, other: Version) -> int | None:
    """-1, 0 or 1 as `version` is older than `other`, equal to it, or newer; None if unknown.

    Not known are versions with too few numbers (`1.4` beside `1.4.3`), and builds of the same
    version that are counted differently.
    """
    order = _compare_numbers(version.numbers, other.numbers)
    if other.build and not version.build:
        return None  # not a build of the vendor's
    if order != 0:
        return order
    if other.build:
        if version.vendor != other.vendor:
            return None
        return _compare_numbers(version.build, other.build)
    if version.is_preview != other.is_preview:
        return -1 if version.is_preview else 1
    return 0


def _compare_numbers(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    common = min(len(one), len(other))
    if one[:common] != other[:common]:
        return -1 if one[:common] < other[:common] else 1
    return None if len(one) < len(other) and any(other[common:]) else 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("."))
