"""Programs of GPU platforms and schedulers: versions, vulnerabilities and priorities."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.doctor.facts import (
    DaemonSet,
    DoctorFacts,
    by_name,
    daemon_sets,
    server_version,
    why_missing,
)
from cluster.doctor.rows import Row, first_few, not_known, ok, wrong
from cluster.source.objects import DAEMON_SETS, NODES, PODS, Object, is_device_plugin, matches
from rules.base.json_values import as_object, as_objects, as_text
from rules.base.text_matching import matches_any
from rules.gpu.images import has_digest, image_name, image_tag
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.profile.platforms.programs import (
    KUBE_SCHEDULER_IMAGE,
    SKEW_POLICY,
    TOOLKIT_ADVISORIES,
    program_of,
)
from rules.profile.platforms.records import Program, Version, parse_version
from rules.profile.platforms.support import affecting_advisories

_VERSIONS = "versions"
_TAG = "see which version it is, and give the image a tag that says it"
_DIGEST = "see in its registry which version has this digest"
_FILES = "run it against the cluster"
_SERVER = "see whether this works: kubectl get --raw /version"


def check_programs(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each image of a program of a GPU platform, and of Kubernetes' scheduler."""
    if row := why_missing(facts, _VERSIONS, PODS):
        yield row
        return
    for image, pods in sorted(facts.pods.images.items()):
        if program := program_of(image):
            yield _program(program, image, sorted(pods))
    schedulers = {
        i: p for i, p in sorted(facts.pods.images.items()) if image_name(i) == KUBE_SCHEDULER_IMAGE
    }
    if schedulers:
        server, remedy = server_version(facts), _SERVER if facts.request else _FILES
        for image, pods in schedulers.items():
            yield _scheduler(image, server, sorted(pods), remedy)


def _program(program: Program, image: str, subject: list[str]) -> Row:
    version = image_tag(image)
    if parse_version(version) is None:
        return _without_version(image, subject)
    compare = f"compare it with {program.releases_url}"
    if not program.advisories:
        message = f"{program.title} is {version}, of which no requirement and no bulletin is known"
        return not_known(_VERSIONS, subject, message, compare)
    found = affecting_advisories(program.advisories, version)
    if found is None:
        message = f"{program.title} is {version}, of which no bulletin says whether it is fixed"
        return not_known(_VERSIONS, subject, message, compare)
    newest = program.advisories[-1]
    if found:
        listed = first_few(
            [each for advisory in reversed(found) for each in advisory.vulnerabilities]
        )
        message = f"{program.title} is {version}, which has known vulnerabilities: {listed}"
        others = ", ".join(newest.backported_versions)
        fixed = f"{others} or {newest.fixed_version}" if others else newest.fixed_version
        remedy = f"install {fixed}, or newer; see {newest.source.url}"
        return wrong(_VERSIONS, subject, message, remedy)
    message = f"no bulletin up to {newest.source.update_date} concerns {version} of {program.title}"
    return ok(_VERSIONS, subject, message)


def _scheduler(image: str, server: Version | str, subject: list[str], remedy: str) -> Row:
    """A scheduler may be one minor version older than the API server, and not newer.

    `remedy` is what to do if `server` says why its version is not known.
    """
    stated = parse_version(image_tag(image))
    if stated is None:
        return _without_version(image, subject)
    shown = ".".join(map(str, stated.numbers))
    if isinstance(server, str):
        message = f"the version of the API server, for kube-scheduler {shown}, is not known"
        return not_known(_VERSIONS, subject, f"{message}: {server}", remedy)
    about = f"kube-scheduler {shown}, where the API server is {'.'.join(map(str, server.numbers))}"
    (major, minor, *_), (own_major, own_minor, *_) = _two(server), _two(stated)
    if major == own_major and own_minor in {minor, minor - 1}:
        return ok(_VERSIONS, subject, about)
    message = f"{about}: it must be of the same minor version, or one older"
    remedy = f"use the image of version {major}.{minor}; see {SKEW_POLICY.url}"
    return wrong(_VERSIONS, subject, message, remedy)


def _without_version(image: str, subject: list[str]) -> Row:
    if has_digest(image):
        message = f"its image has a digest, beside which the tag does not count: {image}"
        return not_known(_VERSIONS, subject, message, _DIGEST)
    return not_known(_VERSIONS, subject, f"its image tells no version: {image}", _TAG)


def _two(version: Version) -> tuple[int, ...]:
    return (*version.numbers, 0)[:2] if len(version.numbers) < 2 else version.numbers[:2]  # noqa: PLR2004  # major and minor


# The schedulers that pods name, and those without which nobody places the resources of nodes.

_SCHEDULERS = "schedulers"
MAX_SCHEDULERS = 50
_INSTALL_SCHEDULER = "install it, or correct schedulerName"
_SEE_SCHEDULER = (
    "see whether it runs outside of the cluster, as with a provider; or correct the name"
)


def check_schedulers(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each scheduler that pods wait for, or that GPUs of the cluster need.

    Of those that pods wait for, the first MAX_SCHEDULERS by name, as a pod can name any. Anyone can
    also call a pod as one of a scheduler, so `ok` is a sign and no proof.
    """
    if facts.usage is None:
        return  # other checks say that pods could not be listed
    pods = facts.pods
    offered = [used.resource for node in facts.usage.nodes for used in node.resources if used.total]
    needed = {
        scheduler.name: resource
        for scheduler in facts.policy.profile.schedulers
        if scheduler.required and scheduler.name != DEFAULT_SCHEDULER
        for resource in offered
        if matches_any(scheduler.resources, resource)
    }
    known = facts.policy.profile.scheduler_names
    running = {name for word in pods.scheduler_words for name in _schedulers_of(word)}
    for name in [*needed, *sorted(pods.waiting.keys() - needed)[:MAX_SCHEDULERS]]:
        waiting = sorted(pods.waiting.get(name, ()))
        if name in pods.placing or name in running:
            yield ok(_SCHEDULERS, name, "it runs, or has placed a pod")
            continue
        number = f"{len(waiting):,} pods wait" if len(waiting) > 1 else "a pod waits"
        why = f"{needed[name]} needs it" if name in needed else f"{number} for it"
        message = f"{why}, and no pod seems to run it"
        if name in needed or name in known:
            yield wrong(_SCHEDULERS, name, message, _INSTALL_SCHEDULER, names=waiting or [name])
        else:
            yield not_known(_SCHEDULERS, name, message, _SEE_SCHEDULER, names=waiting)


def _schedulers_of(word: str) -> Iterator[str]:
    """Yield the names of schedulers of which one or its pod may be called `word`."""
    yield word
    yield from (word[: match.start()] for match in re.finditer("-", word))


# NVIDIA's container toolkit: known vulnerabilities of the version that nodes have.

_CONTAINER_TOOLKIT = "container toolkit"
# The operator installs the toolkit with this image, from whatever registry.
_IMAGE = "container-toolkit"
_GPUS = "nvidia.com/"
_NEWEST = TOOLKIT_ADVISORIES[-1]
_INSTALL_TOOLKIT = (
    f"install {_NEWEST.fixed_version} or newer; "
    f"the bulletins say which settings are not concerned: {_NEWEST.source.url}"
)
_BY_HAND = (
    f"see what `nvidia-ctk --version` says on a node: {_NEWEST.fixed_version} or newer is needed"
)


def check_container_toolkit(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each DaemonSet that installs the toolkit, and one for nodes without any.

    Neither nodes nor their labels say which version they have; where the operating system brings
    the toolkit along, nothing in the cluster does.
    """
    nodes = [(name, node) for name, node in by_name(facts.objects(NODES)) if _has_gpus(node)]
    if nodes and (row := why_missing(facts, _CONTAINER_TOOLKIT, DAEMON_SETS)):
        yield row
        return
    selectors = []
    for daemon_set in daemon_sets(facts):
        if image := _toolkit_image(daemon_set.pod_spec):
            selectors.append({"matchLabels": daemon_set.pod_spec.get("nodeSelector")})
            yield _row(daemon_set, image)
    others = [name for name, node in nodes if not any(matches(s, _labels(node)) for s in selectors)]
    if others:
        message = "nothing in the cluster says which version these nodes have"
        yield not_known(_CONTAINER_TOOLKIT, others, message, _BY_HAND)


def _row(daemon_set: DaemonSet, image: str) -> Row:
    version = image_tag(image)
    found = affecting_advisories(TOOLKIT_ADVISORIES, version)
    if found is None:
        message = f"its image does not tell whether its version is fixed: {image}"
        return not_known(_CONTAINER_TOOLKIT, daemon_set.subject, message, _BY_HAND)
    if found:
        listed = first_few(
            [each for advisory in reversed(found) for each in advisory.vulnerabilities]
        )
        message = f"{version} has known vulnerabilities: {listed}"
        return wrong(_CONTAINER_TOOLKIT, daemon_set.subject, message, _INSTALL_TOOLKIT)
    updated, wanted = (
        daemon_set.status.get(field)
        for field in ("updatedNumberScheduled", "desiredNumberScheduled")
    )
    if isinstance(wanted, int) and wanted != (updated or 0):
        message = (
            f"{version} is on {updated or 0} of {wanted} nodes; the others have another version"
        )
        return not_known(
            _CONTAINER_TOOLKIT, daemon_set.subject, message, "wait until all pods are replaced"
        )
    message = f"no bulletin up to {_NEWEST.source.update_date} concerns {version}"
    return ok(_CONTAINER_TOOLKIT, daemon_set.subject, message)


def _toolkit_image(pod_spec: Mapping[str, Any]) -> str:
    images = (as_text(c.get("image")) for _, c in as_objects(pod_spec.get("containers")))
    return next((image for image in images if image_name(image) == _IMAGE), "")


def _has_gpus(node: Object) -> bool:
    allocatable = as_object(as_object(node.get("status")).get("allocatable"))
    return any(resource.startswith(_GPUS) for resource in allocatable)


def _labels(node: Object) -> Mapping[str, Any]:
    return as_object(as_object(node.get("metadata")).get("labels"))


# The priority of device plugins: pods of users must not evict them.

_COMPONENT_PRIORITY = "component priority"
_CONSEQUENCE = "and the node then offers no GPU"
_PRIORITIES = ("system-node-critical", "system-cluster-critical")


def check_component_priority(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each DaemonSet that mounts the folder in which device plugins register."""
    if row := why_missing(facts, _COMPONENT_PRIORITY, DAEMON_SETS):
        yield row
        return
    for subject, spec, _ in daemon_sets(facts):
        if not is_device_plugin(spec):
            continue
        priority = as_text(spec.get("priorityClassName"))
        if priority in _PRIORITIES:
            yield ok(_COMPONENT_PRIORITY, subject, f"has the priority class {priority}")
        else:
            found = f"the priority class {priority}" if priority else "no priority class"
            message = f"has {found}: pods of higher priority can preempt it, {_CONSEQUENCE}"
            yield wrong(
                _COMPONENT_PRIORITY, subject, message, f"set priorityClassName: {_PRIORITIES[0]}"
            )
