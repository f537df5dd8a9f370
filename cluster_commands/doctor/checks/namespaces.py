"""Which mode the namespaces have in which pods use GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from cluster.doctor.checks.gpuward import own_configurations
from cluster.doctor.facts import Facts, by_name, why_missing
from cluster.source.registered import registered_mode
from cluster_commands.doctor.rows import Row, names, ok, wrong
from cluster_commands.source.resources import NAMESPACES, VALIDATING
from rules.base.json_access import as_object
from rules.finding import Action
from webhook.registration import MODE_LABEL

_CHECK = "namespaces"
_MODES = [action.word for action in Action]


def check_namespaces(facts: Facts) -> Iterator[Row]:
    """One row for each mode, and one for each label that names no mode."""
    configurations = own_configurations(facts, VALIDATING)
    if not configurations:
        return  # the check of the webhook says why
    if row := why_missing(facts, _CHECK, NAMESPACES):
        yield row
        return
    users = _gpu_namespaces(facts)
    by_mode: dict[str, list[str]] = defaultdict(list)
    for name, item in by_name(facts.objects(NAMESPACES)):
        labels = as_object(as_object(item.get("metadata")).get("labels"))
        label = labels.get(MODE_LABEL)
        if label is not None and label not in _MODES:
            message = f"the label {MODE_LABEL}={label} names no mode: the default mode counts"
            yield wrong(_CHECK, name, message, f"set it to one of {', '.join(_MODES)}")
        mode = registered_mode(configurations, name, labels)
        by_mode[mode or "not sent to gpuward"].append(name)
    for mode, found in sorted(by_mode.items()):
        with_gpus = [name for name in found if name in users]
        pods = f"; pods with GPUs in {names(with_gpus)}" if with_gpus else ""
        yield ok(_CHECK, f"mode {mode}" if mode in _MODES else mode, f"{len(found)}{pods}")


def _gpu_namespaces(facts: Facts) -> set[str]:
    consumers = facts.usage.consumers if facts.usage else ()
    return {consumer.namespace for consumer in consumers}
