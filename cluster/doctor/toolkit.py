"""How NVIDIA's programs are set on nodes: whether a variable gives GPUs, and MIG.

Without `ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED=false`, a container gets the GPUs
that its variable names. With it, the device plugin has to hand out its GPUs by something else.
Source: NVIDIA/nvidia-container-toolkit internal/config, NVIDIA/k8s-device-plugin README.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cluster.doctor.facts import Facts, by_name, daemon_sets
from cluster.doctor.rows import Row, first_few, not_known, ok, wrong
from cluster.source.objects import NODES, is_device_plugin, matches
from rules.base.json_values import as_object, as_objects, as_text
from rules.gpu.images import image_name

ACCEPT_VARIABLE = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
ACCEPT_MOUNTS = "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS"
STRATEGY = "DEVICE_LIST_STRATEGY"
_MOUNTS = "volume-mounts"
_STRATEGY_ADVICE = (
    f"set {STRATEGY} of the device plugin to cdi-cri, or to {_MOUNTS} with {ACCEPT_MOUNTS}=true "
    "for the toolkit"
)
_CHECK = "toolkit settings"
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
        """Whether the variable is set to false."""
        return self.settings.get(name, "").lower() in {"false", "0", "f"}

    def is_true(self, name: str) -> bool:
        """Whether the variable is set to true."""
        return self.settings.get(name, "").lower() in {"true", "1", "t"}


class Toolkit(NamedTuple):
    """The toolkits and the device plugins of a cluster, and its nodes with NVIDIA's GPUs."""

    toolkits: tuple[Program, ...]
    plugins: tuple[Program, ...]
    nodes: frozenset[str]

    def ignoring(self) -> str:
        """Where every GPU node is set to ignore the variable; empty if that is not known."""
        ignoring = [each for each in self.toolkits if each.is_false(ACCEPT_VARIABLE)]
        covered = frozenset[str]().union(*(each.nodes for each in ignoring))
        accepting = [each for each in self.toolkits if not each.is_false(ACCEPT_VARIABLE)]
        if not self.nodes or self.nodes - covered or any(each.nodes for each in accepting):
            return ""
        return f"{ACCEPT_VARIABLE}=false in {', '.join(each.subject for each in ignoring)}"


def read_toolkit(facts: Facts) -> Toolkit:
    """What the DaemonSets of a cluster say."""
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
    """Whether the manager of configurations runs beside the plugin."""
    return any(
        "config-manager" in as_text(container.get("name"))
        for _, container in as_objects(spec.get("containers"))
    )


def _has_gpus(node: Mapping[str, Any]) -> bool:
    allocatable = as_object(as_object(node.get("status")).get("allocatable"))
    return any(resource.startswith(_NVIDIA) for resource in allocatable)


# Whether the toolkit and the device plugin fit, and what containers can do by variables.


def check_toolkit_settings(facts: Facts) -> Iterator[Row]:
    """One row for each DaemonSet of the toolkit: whether a variable gives GPUs on its nodes."""
    found = read_toolkit(facts)
    for toolkit in found.toolkits:
        if not (nodes := sorted(toolkit.nodes)):
            continue
        accepted = toolkit.settings.get(ACCEPT_VARIABLE, "")
        if accepted == UNKNOWN:
            message = f"{ACCEPT_VARIABLE} is from another object"
            yield not_known(_CHECK, toolkit.subject, message, "see what the object says")
        elif not toolkit.is_false(ACCEPT_VARIABLE):
            message = (
                f"on {first_few(nodes)} an unprivileged container gets the GPUs that "
                "NVIDIA_VISIBLE_DEVICES names: only admission closes this way"
            )
            yield ok(_CHECK, toolkit.subject, message, names=nodes)
        else:
            yield from _strategies(toolkit, found.plugins)


def _strategies(toolkit: Program, plugins: Iterable[Program]) -> Iterator[Row]:
    """Whether the device plugins of the toolkit's nodes hand out GPUs by something else."""
    shared = [plugin for plugin in plugins if plugin.nodes & toolkit.nodes]
    closed = "unprivileged containers get no GPUs by NVIDIA_VISIBLE_DEVICES"
    if not shared:
        yield ok(_CHECK, toolkit.subject, f"{closed}, and no device plugin of NVIDIA runs there")
    for plugin in shared:
        subject = f"{toolkit.subject}, {plugin.subject}"
        strategy = plugin.settings.get(STRATEGY, "")
        by = {name.strip() for name in strategy.split(",")} - {"", "envvar"}
        if strategy == UNKNOWN or (plugin.has_file and not by):
            message = f"{closed}; {STRATEGY} is in another object, and must be another way"
            yield not_known(_CHECK, subject, message, "see what the object says")
        elif not by:
            message = f"{closed}, and the device plugin hands out its GPUs by it: pods get none"
            yield wrong(_CHECK, subject, message, _STRATEGY_ADVICE)
        elif by == {_MOUNTS} and not toolkit.is_true(ACCEPT_MOUNTS):
            message = f"{closed}, nor by mounts, and the device plugin uses mounts: pods get none"
            yield wrong(_CHECK, subject, message, _STRATEGY_ADVICE)
        else:
            yield ok(_CHECK, subject, f"{closed}; the device plugin uses {', '.join(sorted(by))}")


# Nodes whose MIG partitions could not be made.

_MIG = "MIG"
_CONFIG, _STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"


def check_mig(facts: Facts) -> Iterator[Row]:
    """One row for each value of the label for MIG that the MIG manager could not apply.

    Source: NVIDIA/mig-parted deployments/container/reconfigure-mig.sh
    """
    failed: dict[str, list[str]] = {}
    good: list[str] = []
    for name, node in by_name(facts.objects(NODES)):
        labels = as_object(as_object(node.get("metadata")).get("labels"))
        if labels.get(_STATE) == "failed":
            failed.setdefault(as_text(labels.get(_CONFIG)), []).append(name)
        elif labels.get(_STATE) == "success":
            good.append(name)
    for config, nodes in sorted(failed.items()):
        message = f"the MIG manager could not apply {_CONFIG}={config}"
        remedy = (
            "see whether the ConfigMap of the MIG manager, such as default-mig-parted-config, has "
            "this name under mig-configs, and what nvidia-mig-manager logs"
        )
        yield wrong(_MIG, nodes, message, remedy)
    if good:
        yield ok(_MIG, good, f"nodes whose partitions are as their label says: {len(good):,}")
