"""NVIDIA's programs on nodes: the settings of toolkit and device plugin, and MIG partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cluster.doctor.facts import DoctorFacts, by_name
from cluster.doctor.nvidia_toolkit import (
    ACCEPT_MOUNTS,
    ACCEPT_VARIABLE,
    STRATEGY,
    UNKNOWN,
    Program,
    read_toolkit,
)
from cluster.doctor.rows import Row, first_few, not_known, ok, wrong
from cluster.source.objects import NODES
from rules.base.json_values import as_object, as_text

_MOUNTS = "volume-mounts"
_STRATEGY_ADVICE = (
    f"set {STRATEGY} of the device plugin to cdi-cri, or to {_MOUNTS} with {ACCEPT_MOUNTS}=true "
    "for the toolkit"
)
_CHECK = "toolkit settings"
_MIG = "MIG"
_CONFIG, _STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
_PRODUCT, _INVALID = "nvidia.com/gpu.product", "-MIG-INVALID"


def check_toolkit_settings(facts: DoctorFacts) -> Iterator[Row]:
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
    """Yield a row for each device plugin of the toolkit's nodes: what it hands out GPUs by."""
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


def check_mig(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each value of the label for MIG that the MIG manager could not apply.

    And one for the nodes whose partitions the device plugin does not offer.
    Source: NVIDIA/mig-parted deployments/container/reconfigure-mig.sh, NVIDIA/k8s-device-plugin
    internal/lm/mig-strategy.go
    """
    failed: dict[str, list[str]] = {}
    good: list[str] = []
    invalid: list[str] = []
    for name, node in by_name(facts.objects(NODES)):
        labels = as_object(as_object(node.get("metadata")).get("labels"))
        if as_text(labels.get(_PRODUCT)).endswith(_INVALID):
            invalid.append(name)
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
    if invalid:
        message = (
            f"the label {_PRODUCT} says {_INVALID[1:]}: with the strategy single, the plugin "
            "offers partitions only if every card has some, and all of one kind"
        )
        remedy = (
            f"give all cards of the node the same partitions by {_CONFIG}, or set the strategy to "
            "mixed"
        )
        yield wrong(_MIG, invalid, message, remedy)
        good = [name for name in good if name not in invalid]
    if good:
        yield ok(_MIG, good, f"nodes whose partitions are as their label says: {len(good):,}")
