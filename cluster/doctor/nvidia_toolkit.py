"""The settings of NVIDIA's container toolkit and device plugin, as their DaemonSets have them.

Without `ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED=false`, a container gets the GPUs
that its variable names. With it, the device plugin has to hand out its GPUs by something else.
Source: NVIDIA/nvidia-container-toolkit internal/config, NVIDIA/k8s-device-plugin README.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cluster.doctor.facts import DoctorFacts, by_name, daemon_sets
from cluster.source.objects import NODES, is_device_plugin, matches
from rules.base.json_values import as_object, as_objects, as_text
from rules.gpu.images import image_name

ACCEPT_VARIABLE = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
ACCEPT_MOUNTS = "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS"
STRATEGY = "DEVICE_LIST_STRATEGY"
# The operator installs the toolkit with this image, from whatever registry; NVIDIA's plugin.
TOOLKIT_IMAGE, PLUGIN_IMAGE = "container-toolkit", "k8s-device-plugin"
_NVIDIA = "nvidia.com/"
UNKNOWN = "?"
"""The value of a variable that refers to something else."""


class Program(NamedTuple):
    """A DaemonSet of the toolkit or of the device plugin.

    - `settings`: its variables by name, with UNKNOWN for a reference.
    - `nodes`: the GPU nodes that its node selector selects.
    - `has_file`: whether a file of settings is mounted, which may say something else.
    """

    subject: str
    settings: Mapping[str, str]
    nodes: frozenset[str]
    has_file: bool

    def is_false(self, name: str) -> bool:
        """Return whether the variable is set to false."""
        return self.settings.get(name, "").lower() in {"false", "0", "f"}

    def is_true(self, name: str) -> bool:
        """Return whether the variable is set to true."""
        return self.settings.get(name, "").lower() in {"true", "1", "t"}


class Toolkit(NamedTuple):
    """The toolkits and the device plugins of a cluster, and its nodes with NVIDIA's GPUs."""

    toolkits: tuple[Program, ...]
    plugins: tuple[Program, ...]
    nodes: frozenset[str]

    def ignoring(self) -> str:
        """Return where every GPU node is set to ignore the variable; empty if that is not known."""
        ignoring = [each for each in self.toolkits if each.is_false(ACCEPT_VARIABLE)]
        covered = frozenset[str]().union(*(each.nodes for each in ignoring))
        accepting = [each for each in self.toolkits if not each.is_false(ACCEPT_VARIABLE)]
        if not self.nodes or self.nodes - covered or any(each.nodes for each in accepting):
            return ""
        return f"{ACCEPT_VARIABLE}=false in {', '.join(each.subject for each in ignoring)}"


def read_toolkit(facts: DoctorFacts) -> Toolkit:
    """Return the toolkits and device plugins, as the DaemonSets of a cluster describe them."""
    labels = {
        name: as_object(as_object(node.get("metadata")).get("labels"))
        for name, node in by_name(facts.objects(NODES))
        if _has_gpus(node)
    }
    if facts.usage:  # nodes of a DRA driver have no such resource
        drivers = {
            node.name
            for node in facts.usage.nodes
            if any(used.resource.endswith(".nvidia.com") for used in node.resources)
        }
        for name, node in by_name(facts.objects(NODES)):
            if name in drivers:
                labels[name] = as_object(as_object(node.get("metadata")).get("labels"))
    toolkits: list[Program] = []
    plugins: list[Program] = []
    for daemon_set in daemon_sets(facts):
        spec = daemon_set.pod_spec
        for _, container in as_objects(spec.get("containers")):
            image = image_name(as_text(container.get("image")))
            selector = {"matchLabels": spec.get("nodeSelector")}
            nodes = frozenset(name for name, found in labels.items() if matches(selector, found))
            if image == TOOLKIT_IMAGE:
                made = Program(daemon_set.subject, _settings(container), nodes, has_file=False)
                toolkits.append(made)
            elif image == PLUGIN_IMAGE and is_device_plugin(spec):
                has_file = "CONFIG_FILE" in _settings(container) or _has_sidecar(spec)
                made = Program(daemon_set.subject, _settings(container), nodes, has_file)
                plugins.append(made)
    return Toolkit(tuple(toolkits), tuple(_first_of_each(plugins)), frozenset(labels))


def _first_of_each(programs: Iterable[Program]) -> Iterable[Program]:
    """One for each DaemonSet: its sidecars have the same image."""
    found: dict[str, Program] = {}
    for each in programs:
        known = found.get(each.subject)
        if known is None or (STRATEGY in each.settings and STRATEGY not in known.settings):
            found[each.subject] = each
    return found.values()


def _settings(container: Mapping[str, Any]) -> dict[str, str]:
    return {
        as_text(variable.get("name")): UNKNOWN
        if "valueFrom" in variable
        else as_text(variable.get("value"))
        for _, variable in as_objects(container.get("env"))
    }


def _has_sidecar(spec: Mapping[str, Any]) -> bool:
    """Return whether the manager of configurations runs beside the plugin."""
    return any(
        "config-manager" in as_text(container.get("name"))
        for _, container in as_objects(spec.get("containers"))
    )


def _has_gpus(node: Mapping[str, Any]) -> bool:
    allocatable = as_object(as_object(node.get("status")).get("allocatable"))
    return any(resource.startswith(_NVIDIA) for resource in allocatable)
