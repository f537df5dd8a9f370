"""Kueue: classes of devices that it does not count, and workloads that it never admits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cluster.accounting.claims import is_gpu_driver
from cluster.accounting.pod_requests import effective_requests
from cluster.doctor.facts import DoctorFacts, name_of
from cluster.doctor.rows import Row, first_few, not_known, ok, wrong
from cluster.source.objects import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    KUEUE_WORKLOADS,
    SLICES,
    VALIDATING,
    GetError,
    Object,
    SourceError,
)
from kubeyaml import YamlError, read, split
from rules.base.json_values import as_object, as_objects, as_text

_KUEUE = "Kueue"
_KUEUE_KEY = "controller_manager_config.yaml"
_UNUSED_QUOTA = re.compile(r"insufficient unused quota for \S{1,200} in flavor ([^\s,;]+)")
_UNTOLERATED = re.compile(r"untolerated taint (.{1,200}?) in flavor ([^\s,;]+)")
_MISMATCH = re.compile(r"flavor (\S+) doesn't match node affinity")
_TOPOLOGY = re.compile(
    r'topology "([^"]{1,253})" [^.]{1,200}\. Total nodes: (\d{1,9}); excluded: ([^;]{1,2000})'
)
_EXCLUDED_BY_TAINT = re.compile(r'taint "([^"]{1,500})": (\d{1,9})')
_MAX_MESSAGE = 10_000
_FLAVOR_REMEDY = (
    "write the toleration into spec.tolerations of the flavor; or set `workloads: fix` in the "
    "policy of gpuward, which adds it to the templates of new workloads, and create these again"
)
_MISMATCH_REMEDY = (
    "remove what selects other nodes from the templates: Kueue adds the labels of a flavor to the "
    "pods; or give the queue a flavor with these labels"
)


def check_untolerated_flavors(facts: DoctorFacts) -> Iterator[Row]:
    """A row for each flavor whose taint of GPU nodes keeps workloads from being admitted.

    There is one too for each topology all of whose nodes have such taints. Kueue compares the taint
    with the template. What gpuward and others add to Pods comes too late.
    Source: kubernetes-sigs/kueue, pkg/scheduler/flavorassigner/flavorassigner.go
    and pkg/cache/scheduler/tas_flavor_snapshot.go
    """
    keys = {taint.key for taint in facts.policy.profile.taints}
    waiting: dict[tuple[str, str], list[str]] = {}
    for workload in facts.objects(KUEUE_WORKLOADS):
        message = _why_without_quota(workload)[:_MAX_MESSAGE]
        for subject, taint in dict.fromkeys(_untolerated(message)):
            if any(key in taint for key in keys):
                metadata = as_object(workload.get("metadata"))
                name = f"{name_of(workload)} in {as_text(metadata.get('namespace'))}"
                waiting.setdefault((subject, taint), []).append(name)
    for (subject, taint), names in sorted(waiting.items()):
        message = (
            f"workloads that Kueue never admits, because their templates do not tolerate its taint "
            f"{taint}: {len(names):,}: {first_few(names)}"
        )
        yield wrong(_KUEUE, subject, message, _FLAVOR_REMEDY, names=names)


def check_mismatched_flavors(facts: DoctorFacts) -> Iterator[Row]:
    """A row for each queue with workloads whose templates select nodes of no flavor.

    Only of workloads that ask for GPUs.
    Source: kubernetes-sigs/kueue, pkg/scheduler/flavorassigner/flavorassigner.go
    """
    waiting: dict[str, list[str]] = {}
    others: dict[str, dict[str, None]] = {}
    for workload in facts.objects(KUEUE_WORKLOADS):
        message = _why_without_quota(workload)[:_MAX_MESSAGE]
        flavors = _MISMATCH.findall(message)
        may_be_admitted = not {*_UNUSED_QUOTA.findall(message)} <= {*flavors}
        if not flavors or may_be_admitted or not _asks_for_gpus(workload, facts):
            continue
        namespace = as_text(as_object(workload.get("metadata")).get("namespace"))
        queue = as_text(as_object(workload.get("spec")).get("queueName"))
        subject = f"localqueue/{queue} in {namespace}"
        waiting.setdefault(subject, []).append(f"{name_of(workload)} in {namespace}")
        others.setdefault(subject, {}).update(dict.fromkeys(flavors))
    for subject, names in sorted(waiting.items()):
        message = (
            f"workloads that Kueue never admits, because their templates select other nodes than "
            f"those of {first_few([*others[subject]])}: {len(names):,}: {first_few(names)}"
        )
        yield wrong(_KUEUE, subject, message, _MISMATCH_REMEDY, names=names)


def _asks_for_gpus(workload: Object, facts: DoctorFacts) -> bool:
    for _, pod_set in as_objects(as_object(workload.get("spec")).get("podSets")):
        spec = as_object(as_object(pod_set.get("template")).get("spec"))
        names = effective_requests({"spec": spec})
        if any(facts.policy.profile.resource(name) for name in names):
            return True
    return False


def _untolerated(message: str) -> Iterator[tuple[str, str]]:
    """The flavors and topologies whose taints keep a workload from being admitted, and the taints.

    None if one of them only lacks room: the workload may still be admitted.
    """
    flavors = _UNTOLERATED.findall(message)
    if {*_UNUSED_QUOTA.findall(message)} <= {flavor for _, flavor in flavors}:
        for taint, flavor in flavors:
            yield f"resourceflavor/{flavor}", taint
    for topology, nodes, reasons in _TOPOLOGY.findall(message):
        taints = _EXCLUDED_BY_TAINT.findall(reasons)
        if sum(int(number) for _, number in taints) == int(nodes):
            for taint, _ in taints:
                yield f"topology/{topology}", taint


def _why_without_quota(workload: Object) -> str:
    """The message of Kueue about a Workload without quota; empty if it has it, or has ended."""
    conditions = {
        as_text(each.get("type")): each
        for _, each in as_objects(as_object(workload.get("status")).get("conditions"))
    }
    reserved = conditions.get("QuotaReserved", {})
    if reserved.get("status") == "True" or "Finished" in conditions:
        return ""
    return as_text(reserved.get("message"))


def check_kueue(facts: DoctorFacts) -> Iterator[Row]:
    """One row for the classes of GPUs of which Kueue's configuration has no mapping.

    Releases differ in what they do with a claim of such a class: older ones admit the workload and
    count nothing, newer ones do not admit it.
    Source: kubernetes-sigs/kueue issue 10504, pkg/dra/claims.go
    """
    profile = facts.policy.profile
    classes = sorted(
        name
        for each in facts.objects(DEVICE_CLASSES)
        if is_gpu_driver(name := name_of(each), profile)
        or profile.resource(as_text(as_object(each.get("spec")).get("extendedResourceName")))
    )
    namespace, name = _kueue_configuration(facts)
    if not (classes and name and facts.objects(SLICES)):
        return
    subject = f"configmap/{name} in {namespace}"
    try:
        found = facts.get(CONFIG_MAPS, namespace, name)
        mapped = _mapped_classes(as_text(as_object((found or {}).get("data")).get(_KUEUE_KEY)))
    except SourceError as error:
        right = error.right if isinstance(error, GetError) else ""
        remedy = f"grant the right to {right}" if right else "run the command again"
        yield not_known(_KUEUE, subject, str(error), remedy)
        return
    except YamlError as error:
        yield not_known(_KUEUE, subject, f"{_KUEUE_KEY}: {error}", "write it as YAML")
        return
    if found is None:
        remedy = "look for deviceClassMappings in the configuration of Kueue's controller"
        yield not_known(_KUEUE, subject, "is not there", remedy)
        return
    if missing := [each for each in classes if each not in mapped]:
        message = (
            f"deviceClassMappings has none of the classes {first_few(missing)}: Kueue counts their "
            "devices in no quota, and newer releases admit no workload that claims them"
        )
        remedy = (
            "add the classes to resources.deviceClassMappings, with a resource that ClusterQueues "
            "cover, and restart kueue-controller-manager"
        )
        yield wrong(_KUEUE, subject, message, remedy, names=missing)
    else:
        message = f"maps {first_few(classes)} to resources of queues"
        yield ok(_KUEUE, subject, message, names=classes)


def _kueue_configuration(facts: DoctorFacts) -> tuple[str, str]:
    """The namespace and the name of Kueue's configuration; empty if Kueue is not installed.

    Names in its chart begin as that of the Service of its webhook.
    """
    for item in facts.objects(VALIDATING):
        for _, entry in as_objects(item.get("webhooks")):
            service = as_object(as_object(entry.get("clientConfig")).get("service"))
            name, _, rest = as_text(service.get("name")).partition("-webhook-service")
            if entry.get("name") == "vclusterqueue.kb.io" and name and not rest:
                return as_text(service.get("namespace")), f"{name}-manager-config"
    return "", ""


def _mapped_classes(text: str) -> set[str]:
    """The classes that a configuration of Kueue maps to resources. Raises YamlError."""
    found: set[str] = set()
    for document in filter(None, map(read, split(text))):
        resources = as_object(as_object(document.value).get("resources"))
        for _, mapping in as_objects(resources.get("deviceClassMappings")):
            listed = mapping.get("deviceClassNames")
            found.update(as_text(name) for name in (listed if isinstance(listed, list) else ()))
    return found
