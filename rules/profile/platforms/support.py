"""The versions, regions, operating systems and cards that a feature supports.

Every answer is one of three. What a table does not mention, or a text that cannot be read, is
UNKNOWN and never SUPPORTED.
"""

import re
from collections.abc import Iterable
from enum import Enum

from rules.profile.platforms.cards import find_card
from rules.profile.platforms.records import (
    Advisory,
    Component,
    Feature,
    MinimumVersion,
    OperatingSystem,
    Version,
    compare_versions,
    parse_version,
)

_VERSION_NUMBERS_PATTERN = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}", re.ASCII)
_MAX_OS_IMAGE_CHARACTERS = 200
# Such as Tesla-K80, NVIDIA-M40 and Quadro-RTX-8000.
_SERIES_PATTERN = re.compile(
    r"(?:nvidia[- ])?"
    r"(?:(?:tesla[- ])?(?P<letter>[a-z])[0-9]{1,4}\b|(?:geforce|quadro|titan)\b).{0,60}",
    re.IGNORECASE,
)


class Support(Enum):
    """The answers to whether a feature works with something."""

    SUPPORTED = "ok"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "not known"


def minimum_of(feature: Feature, component: Component, cluster: str = "") -> MinimumVersion | None:
    """The oldest `component` with which `feature` works; None if its page states none.

    `cluster` is the version of Kubernetes, on which the minimum may depend.
    """
    minimums = [minimum for minimum in feature.minimums if minimum.component == component]
    version = parse_version(cluster)
    series = ".".join(map(str, version.numbers[:2])) if version else ""
    return next((minimum for minimum in minimums if minimum.cluster_version in {"", series}), None)


def version_support(
    feature: Feature, component: Component, version: str, cluster: str = ""
) -> Support:
    """Return whether `version` of `component` has `feature`; UNSUPPORTED means too old."""
    minimum = minimum_of(feature, component, cluster)
    stated = parse_version(version)
    oldest = parse_version(minimum.version) if minimum else None
    if minimum is None or stated is None or oldest is None:
        return Support.UNKNOWN
    order = compare_versions(stated, oldest)
    if order is None:
        return Support.UNKNOWN
    too_old = order < 0 or (order == 0 and minimum.is_exclusive)
    return Support.UNSUPPORTED if too_old else Support.SUPPORTED


def affecting_advisories(advisories: Iterable[Advisory], version: str) -> list[Advisory] | None:
    """Those of the bulletins that concern `version`; None if that cannot be said of each.

    A preview that none concerns by its numbers is not known: it may be older than the fixes of
    earlier releases.
    """
    if (stated := parse_version(version)) is None:
        return None
    found = []
    for advisory in advisories:
        fixed = parse_version(advisory.fixed_version)
        order = compare_versions(stated, fixed) if fixed else None
        if order is None:
            return None
        if order < 0 and not _is_backported(advisory, stated):
            found.append(advisory)
    return None if stated.is_preview and not found else found


def _is_backported(advisory: Advisory, stated: Version) -> bool:
    fixes = filter(None, map(parse_version, advisory.backported_versions))
    return any(
        fix.numbers[:2] == stated.numbers[:2] and compare_versions(stated, fix) in {0, 1}
        for fix in fixes
    )


def runtime_support(feature: Feature, runtime: str) -> Support:
    """`version_support` of a node's `containerRuntimeVersion`, such as `containerd://1.6.28`."""
    name, separator, version = runtime.partition("://")
    if separator and name == "containerd":
        return version_support(feature, "containerd", version)
    if separator and name == "docker":
        return version_support(feature, "docker", version)
    return Support.UNKNOWN


def region_support(feature: Feature, region: str) -> Support:
    """Return whether `feature` is offered in the region with the identifier `region`."""
    if not feature.regions or not region:
        return Support.UNKNOWN
    return Support.SUPPORTED if region in feature.regions else Support.UNSUPPORTED


def os_support(feature: Feature, os_image: str) -> Support:
    """Return whether `feature` works on the operating system that a node states as `osImage`.

    UNKNOWN for a text without the minor version that the page demands, such as `CentOS Linux 7`.
    """
    text = os_image[:_MAX_OS_IMAGE_CHARACTERS].lower()
    if not feature.operating_systems or not text.strip():
        return Support.UNKNOWN
    for system in feature.operating_systems:
        if any(word in text for word in system.words):
            return _system_version_support(system, text)
    # Alibaba's own container-optimized systems are editions of its Linux.
    return Support.UNKNOWN if "lifsea" in text else Support.UNSUPPORTED


def _system_version_support(system: OperatingSystem, text: str) -> Support:
    start = max(text.find(word) for word in system.words)
    found = _VERSION_NUMBERS_PATTERN.search(text, start)
    if found is None:
        return Support.UNKNOWN
    stated = found[0].split(".")
    listed = [version.split(".") for version in system.versions]
    if any(stated[: len(version)] == version for version in listed):
        return Support.SUPPORTED
    if any(version[: len(stated)] == stated for version in listed):
        return Support.UNKNOWN
    return Support.UNSUPPORTED


def card_support(feature: Feature, name: str) -> Support:
    """Return whether `feature` works with the card `name`, as labels of nodes have it.

    Of a card that is not known, its name may show that it is of another series. That it is of one
    of these series is not enough: a T1000 is no T4.
    """
    if not feature.card_families:
        return Support.UNKNOWN
    if card := find_card(name):
        listed = card.model.startswith(feature.card_families)
        return Support.SUPPORTED if listed else Support.UNSUPPORTED
    series = _SERIES_PATTERN.fullmatch(name)
    if series is None or (series["letter"] or "").upper() in feature.card_families:
        return Support.UNKNOWN
    return Support.UNSUPPORTED
