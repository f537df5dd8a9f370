"""Versions of the programs of GPU platforms and of schedulers, by the images that pods run."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cluster.doctor.facts import Facts, why_missing
from cluster.protocols import ClusterError
from cluster_commands.doctor.rows import Row, names, not_known, ok, wrong
from cluster_commands.source.resources import PODS
from rules.base.json_access import as_object, as_text
from rules.gpu.images import has_digest, image_name, image_tag
from rules.platforms.versions import Version, parse_version
from rules.profile.platforms.programs import KUBE_SCHEDULER, SKEW_POLICY, program_of
from rules.profile.platforms.records import Program
from rules.profile.platforms.support import affecting

_CHECK = "versions"
_TAG = "see which version it is, and give the image a tag that says it"
_DIGEST = "see in its registry which version has this digest"
_FILES = "run it against the cluster"
_SERVER = "see whether this works: kubectl get --raw /version"


def check_programs(facts: Facts) -> Iterator[Row]:
    """One row for each image of a program of a GPU platform, and of Kubernetes' scheduler."""
    if row := why_missing(facts, _CHECK, PODS):
        yield row
        return
    for image, pods in sorted(facts.images.items()):
        if program := program_of(image):
            yield _program(program, image, names(sorted(pods)))
    schedulers = {i: p for i, p in sorted(facts.images.items()) if image_name(i) == KUBE_SCHEDULER}
    if schedulers:
        server, remedy = _server_version(facts), _SERVER if facts.request else _FILES
        for image, pods in schedulers.items():
            yield _scheduler(image, server, names(sorted(pods)), remedy)


def _program(program: Program, image: str, subject: str) -> Row:
    version = image_tag(image)
    if parse_version(version) is None:
        return _without_version(image, subject)
    compare = f"compare it with {program.releases}"
    if not program.advisories:
        message = f"{program.title} is {version}, of which no requirement and no bulletin is known"
        return not_known(_CHECK, subject, message, compare)
    found = affecting(program.advisories, version)
    if found is None:
        message = f"{program.title} is {version}, of which no bulletin says whether it is fixed"
        return not_known(_CHECK, subject, message, compare)
    newest = program.advisories[-1]
    if found:
        listed = names([each for advisory in reversed(found) for each in advisory.vulnerabilities])
        message = f"{program.title} is {version}, which has known vulnerabilities: {listed}"
        others = ", ".join(newest.backports)
        fixed = f"{others} or {newest.fixed}" if others else newest.fixed
        remedy = f"install {fixed}, or newer; see {newest.source.url}"
        return wrong(_CHECK, subject, message, remedy)
    message = f"no bulletin up to {newest.source.updated} concerns {version} of {program.title}"
    return ok(_CHECK, subject, message)


def _server_version(facts: Facts) -> Version | str:
    """The version of the API server, or why it is not known."""
    if facts.request is None:
        return "the objects are from files"
    try:
        text = as_text(as_object(json.loads(facts.request("/version"))).get("gitVersion"))
    except (ClusterError, ValueError, RecursionError) as error:
        return str(error)
    return parse_version(text) or f"it says {text!r}"


def _scheduler(image: str, server: Version | str, subject: str, remedy: str) -> Row:
    """A scheduler may be one minor version older than the API server, and not newer.

    `remedy` is what to do if `server` says why its version is not known.
    """
    stated = parse_version(image_tag(image))
    if stated is None:
        return _without_version(image, subject)
    shown = ".".join(map(str, stated.numbers))
    if isinstance(server, str):
        message = f"the version of the API server, for kube-scheduler {shown}, is not known"
        return not_known(_CHECK, subject, f"{message}: {server}", remedy)
    about = f"kube-scheduler {shown}, where the API server is {'.'.join(map(str, server.numbers))}"
    (major, minor, *_), (own_major, own_minor, *_) = _two(server), _two(stated)
    if major == own_major and own_minor in {minor, minor - 1}:
        return ok(_CHECK, subject, about)
    message = f"{about}: it must be of the same minor version, or one older"
    remedy = f"use the image of version {major}.{minor}; see {SKEW_POLICY.url}"
    return wrong(_CHECK, subject, message, remedy)


def _without_version(image: str, subject: str) -> Row:
    if has_digest(image):
        message = f"its image has a digest, beside which the tag does not count: {image}"
        return not_known(_CHECK, subject, message, _DIGEST)
    return not_known(_CHECK, subject, f"its image tells no version: {image}", _TAG)


def _two(version: Version) -> tuple[int, ...]:
    return (*version.numbers, 0)[:2] if len(version.numbers) < 2 else version.numbers[:2]  # noqa: PLR2004  # major and minor
