"""The device plugins of the GPU platform, which pods of users must not push off a node."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.doctor.facts import Facts, why_missing
from cluster.source.device_plugins import is_device_plugin
from cluster_commands.doctor.daemon_sets import daemon_sets
from cluster_commands.doctor.rows import Row, ok, wrong
from cluster_commands.source.resources import DAEMON_SETS
from rules.base.json_access import as_text

_CHECK = "component priority"
_CONSEQUENCE = "and the node then offers no GPU"
_PRIORITIES = ("system-node-critical", "system-cluster-critical")


def check_component_priority(facts: Facts) -> Iterator[Row]:
    """One row for each DaemonSet that mounts the folder in which device plugins register."""
    if row := why_missing(facts, _CHECK, DAEMON_SETS):
        yield row
        return
    for subject, spec, _ in daemon_sets(facts):
        if not is_device_plugin(spec):
            continue
        priority = as_text(spec.get("priorityClassName"))
        if priority in _PRIORITIES:
            yield ok(_CHECK, subject, f"has the priority class {priority}")
        else:
            found = f"the priority class {priority}" if priority else "no priority class"
            message = f"has {found}: pods of higher priority can preempt it, {_CONSEQUENCE}"
            yield wrong(_CHECK, subject, message, f"set priorityClassName: {_PRIORITIES[0]}")
