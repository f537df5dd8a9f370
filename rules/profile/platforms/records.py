"""The records of which the tables of vendors' requirements are made."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

Component: TypeAlias = Literal[
    "kubernetes", "kube-scheduler", "ack-ai-installer", "cgpu", "driver", "containerd", "docker"
]
"""What has a version: `driver` is NVIDIA's, `ack-ai-installer` the chart that installs sharing."""


class Source(NamedTuple):
    """The page that a table is from.

    `updated` is the date that the page gives as its last update (ISO 8601), empty if it gives none.
    `url` is empty if the page is known by its title alone. `read` is the date on which the page was
    read, empty if it is known by what others quote of it, or if nobody noted the date.
    """

    publisher: str
    title: str
    updated: str = ""
    url: str = ""
    read: str = ""


class Minimum(NamedTuple):
    """The oldest version of a component with which a feature works.

    `after` says that the version itself is still too old. `cluster` is the Kubernetes version
    (`1.28`) for which the minimum holds, empty if it holds for all.
    """

    component: Component
    version: str
    after: bool = False
    cluster: str = ""


class Advisory(NamedTuple):
    """A vendor's bulletin about vulnerabilities: `fixed` is the oldest version without them.

    `backports` are the oldest versions without them of earlier series, such as `1.10.2`.
    """

    source: Source
    vulnerabilities: tuple[str, ...]
    fixed: str
    backports: tuple[str, ...] = ()


class Program(NamedTuple):
    """A program of a GPU platform whose version the tag of its image states.

    `images` are the last parts of repositories, whatever the registry. `releases` is where its
    versions are listed. Without `advisories` no bulletin about it is known.
    """

    title: str
    images: tuple[str, ...]
    releases: str
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
    is 0 if there is no limit.
    """

    name: str
    title: str
    source: Source
    minimums: tuple[Minimum, ...] = ()
    operating_systems: tuple[OperatingSystem, ...] = ()
    regions: Mapping[str, str] = MappingProxyType({})
    card_families: tuple[str, ...] = ()
    max_pods_per_card: int = 0


class Card(NamedTuple):
    """A model of card; `memory` are the sizes in which it is made, in GB, the smallest first.

    Together, the sources name every size.
    """

    model: str
    memory: tuple[int, ...]
    sources: tuple[Source, ...]
