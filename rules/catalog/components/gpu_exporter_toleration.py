"""An exporter of GPU metrics does not tolerate the taint of GPU nodes.

What it does
------------
Compares DaemonSets that export metrics of GPUs with the taints that the profile of the policy
states for the same maker, as `device-plugin-toleration` does for device plugins. A DaemonSet is an
exporter if it mounts a path of the node, and its name, or one image, both has the word `exporter`
and names a maker of accelerators: `dcgm-exporter`, `amd-device-metrics-exporter`.

It is only a note (`audit`) if the pods tolerate another taint that names GPUs, by a key without a
domain, such as `sku=gpu`: that may be the taint of these nodes, and the profile may be for others.

Why it matters
--------------
The exporter does not run on the nodes with the taint. There is no event and no failed pod, only
metrics that are missing: of a DaemonSet that fits no node, 0 pods are desired. The Helm chart of
NVIDIA's dcgm-exporter tolerates the taint of control planes alone unless its values say more, and a
list in the values replaces the one of the chart.

References
----------
- https://github.com/NVIDIA/dcgm-exporter/issues/731
- https://github.com/NVIDIA/gpu-operator/issues/2717
"""

from rules.base.traits import NODE_AGENT
from rules.gpu.components import exporter_words
from rules.placement.tolerations import findings_of_untolerated_taints
from rules.rule import Action, Context, Findings, KubernetesObject, define_rule


def check(workload: KubernetesObject, _context: Context) -> Findings:
    """Yield each taint of the GPU nodes that the exporter does not tolerate."""
    words = exporter_words(workload)
    return findings_of_untolerated_taints(
        workload, words, "exporter", "nobody sees how their GPUs are used"
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE_AGENT,))
