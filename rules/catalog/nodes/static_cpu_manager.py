"""The kubelets of nodes that share GPUs pin CPUs statically.

What it does
------------
Finds `cpuManagerPolicy: static` in a KubeletConfiguration and in the ConfigMap `kubelet-config`, in
which kubeadm keeps one. In the ConfigMap it reads the text without parsing it. The file does not
say which nodes it is for. Where the policy names a profile with ACK's shared GPUs (`ack`,
`ack-registered`) the rule warns; elsewhere it is a note.

Why it matters
--------------
ACK forbids the static CPU policy on nodes that share their GPUs. On nodes whose cards are not
shared there is nothing wrong with it.

References
----------
- https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/install-and-use-ack-ai-installer-and-the-gpu-inspection-tool
- https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rules.base.json_access import as_object, as_text
from rules.base.json_patch import Path
from rules.finding import Action, Finding
from rules.objects.kubernetes_object import KubernetesObject
from rules.placement.ack_nodes import GPU_MEM
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import KUBELET_CONFIG

FIELD = "cpuManagerPolicy"
# A key of the outermost object, as YAML and as JSON.
_IN_TEXT = re.compile(
    r"^[ {]{0,8}[\"']?cpuManagerPolicy[\"']?[ ]{0,8}:[ ]{0,8}[\"']?static[\"']?[ ]{0,8}(?:$|[,#}])",
    re.MULTILINE,
)


def check(subject: KubernetesObject, _context: Context) -> Iterator[Finding]:
    """Yield the field if it is `static`."""
    # The resource of the profiles whose vendor forbids the policy.
    shared = GPU_MEM in subject.profile.active
    for path in _places(subject):
        yield Finding(
            path=(*subject.path, *path),
            key=FIELD,
            message=f"{FIELD} is static: ACK forbids it on nodes that share their GPUs",
            help=f"leave {FIELD} at none on nodes that share their GPUs",
            action=Action.WARN if shared else Action.AUDIT,
        )


def _places(subject: KubernetesObject) -> Iterator[Path]:
    if subject.object.kind == "KubeletConfiguration":
        if subject.raw.get(FIELD) == "static":
            yield (FIELD,)
        return
    for name, text in as_object(subject.raw.get("data")).items():
        if _IN_TEXT.search(as_text(text)):
            yield ("data", name)


RULE = define_rule(
    check, subject=KubernetesObject, action=Action.WARN, since="0.1", needs=(KUBELET_CONFIG,)
)
