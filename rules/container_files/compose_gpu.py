"""A compose file gives a service GPUs without Kubernetes.

What it does
------------
Finds in compose files services with `gpus`, with `devices` that are GPUs, also below
`deploy.resources.reservations`, with the runtime `nvidia`, with `privileged` and an image that is
known to contain CUDA, with a visible-devices variable that gives GPUs, and with a volume of
`/dev/null`, or of a variable, at `/var/run/nvidia-container-devices/…`, which NVIDIA's toolkit
takes for a request where it is told to.

Why it matters
--------------
On a node of a cluster the scheduler does not know of these containers: it gives the same GPUs to
pods. On other machines there is nothing wrong with it; then leave compose files out, or set the
action of this rule to `off`.

References
----------
- https://docs.docker.com/compose/how-tos/gpu-support/
- https://docs.docker.com/reference/compose-file/services/
"""

from rules.gpu.commands.container_tools import findings_of_uncounted_gpus
from rules.rule import Action, ContainerSetting, Context, Findings, define_rule

MESSAGE_TEMPLATE = "{holder} gets GPUs by {what}, which no scheduler of Kubernetes counts"


def check(setting: ContainerSetting, _context: Context) -> Findings:
    """Yield the setting if it gives a service a GPU."""
    return findings_of_uncounted_gpus(setting, MESSAGE_TEMPLATE)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=())
