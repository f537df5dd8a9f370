"""A device plugin of GPUs does not tolerate the taint of GPU nodes.

What it does
------------
Compares DaemonSets of GPU device plugins with the taints that the profile of the policy states for
the same maker: those of `nvidia.com/*` if the name or an image of the plugin has the word `nvidia`.
Of an image only the owner and the name count, the last two parts of its repository. A DaemonSet is
a device plugin if it mounts `/var/lib/kubelet/device-plugins`, and its name or an image names a
maker of accelerators.

It is only a note (`audit`) if the pods tolerate another taint that names GPUs, by a key without a
domain, such as `sku=gpu`: that may be the taint of these nodes, and the profile may be for others.

Why it matters
--------------
The plugin does not run on the nodes with the taint, so these nodes offer no GPUs, and every GPU pod
stays Pending.

References
----------
- https://github.com/NVIDIA/k8s-device-plugin/issues/68
"""

from rules.base.traits import NODE_AGENT
from rules.gpu.components import device_plugin_words
from rules.placement.tolerations import findings_of_untolerated_taints
from rules.rule import Action, Context, Findings, KubernetesObject, define_rule


def check(workload: KubernetesObject, _context: Context) -> Findings:
    """Yield each taint of the plugin's nodes that it does not tolerate."""
    words = device_plugin_words(workload)
    return findings_of_untolerated_taints(workload, words, "device plugin", "they offer no GPUs")


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE_AGENT,))
