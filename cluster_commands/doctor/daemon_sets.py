"""The DaemonSets of a cluster, as checks look at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cluster.doctor.facts import Facts, by_name
from cluster_commands.source.resources import DAEMON_SETS
from rules.base.json_access import as_object, as_text


class DaemonSet(NamedTuple):
    """A DaemonSet: how rows name it, the `spec` of its pods, and its status."""

    subject: str
    pod_spec: Mapping[str, Any]
    status: Mapping[str, Any]


def daemon_sets(facts: Facts) -> Iterator[DaemonSet]:
    """All DaemonSets that could be listed, in the order of their names."""
    for name, item in by_name(facts.objects(DAEMON_SETS)):
        namespace = as_text(as_object(item.get("metadata")).get("namespace"))
        template = as_object(as_object(item.get("spec")).get("template"))
        subject = f"daemonset/{name} in {namespace}"
        yield DaemonSet(subject, as_object(template.get("spec")), as_object(item.get("status")))
