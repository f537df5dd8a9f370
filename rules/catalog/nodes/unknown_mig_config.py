"""The label nvidia.com/mig.config of a node names no profile of the MIG manager's configuration.

What it does
------------
Compares the label `nvidia.com/mig.config` of Nodes, and of what makes nodes or chooses them, with
the files for NVIDIA's MIG manager in the same run: texts with `mig-configs` in ConfigMaps, and in
the values of charts, which are in an Application of Argo CD, a HelmRelease of Flux, or a file with
`values` in its name. Finds values that are in none of them. It is a note if NVIDIA's own
configuration has such a name, such as `all-1g.10gb`, because the node may use that one. Without
such a file nothing is compared.

Why it matters
--------------
The MIG manager looks for the name in its file, and does not find it: it sets the label
`nvidia.com/mig.config.state` to `failed`, and the cards stay divided as they were. Pods that ask
for the wanted partitions stay Pending. A configuration of your own replaces NVIDIA's, also its
names.

References
----------
- https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-mig.html
- https://github.com/NVIDIA/mig-parted
- https://github.com/NVIDIA/gpu-operator/issues/1286
"""

import re

from rules.base.json_values import display
from rules.base.text_matching import has_placeholder, nearest_word
from rules.base.traits import KNOWN_CONFIG_MAPS, NODE, NODE_CHOOSING_OBJECT, NODE_POOL
from rules.inventory.inventory import ConfigMap, Inventory, MigConfiguration
from rules.placement.node_labels import node_labels
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

_LABEL = "nvidia.com/mig.config"
# The names that NVIDIA's operator brings.
_DEFAULT = re.compile(r"all-(?:disabled|enabled|balanced|[0-9]+g\.[0-9]+gb(?:[.+-][a-z0-9.+-]+)?)")
_MAX_NAMED = 5


def check(subject: KubernetesObject, context: Context) -> Findings:
    """Yield each label that names no profile, once for each pool and value."""
    known = context.inventory.compute_once(_known, None)
    reported: set[str] = set()
    for label in node_labels(subject) if known else ():
        key = f"{label.key}={label.value}"
        if label.name != _LABEL or label.value in known or has_placeholder(label.value):
            continue
        if key in reported:
            continue
        reported.add(key)
        right = nearest_word(label.value, known)
        names = ", ".join(sorted(known)[:_MAX_NAMED])
        yield Finding(
            path=label.path,
            key=key,
            message=f"the node label {_LABEL} is {display(label.value)}, a name that no "
            "configuration of the MIG manager in this run has",
            help=f"write {right}" if right else f"write a name that is there, such as {names}",
            action=Action.AUDIT if _DEFAULT.fullmatch(label.value) else Action.WARN,
        )


def _known(inventory: Inventory, _argument: None) -> frozenset[str]:
    """The names in all files; none if a ConfigMap is there with different contents."""
    found: set[str] = set()
    for by_name in inventory.records.get(MigConfiguration, {}).values():
        found.update(*(configuration.names for configuration in by_name.values()))
    for by_name in inventory.records.get(ConfigMap, {}).values():
        if None in by_name.values():
            return frozenset()
        found.update(*(config_map.mig_configs for config_map in by_name.values()))
    return frozenset(found)


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(NODE | NODE_POOL | NODE_CHOOSING_OBJECT, KNOWN_CONFIG_MAPS),
)
