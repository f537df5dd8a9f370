"""A script starts a container with GPUs without Kubernetes.

What it does
------------
Finds in shell scripts, makefiles and the files of CI systems the commands `run` and `create` of
docker, podman and nerdctl, and `ctr run`, with an option that gives the container GPUs: `--gpus`,
`--device` of a GPU, `--runtime nvidia`, a visible-devices variable, or a volume of `/dev/null`, or
of a variable, at `/var/run/nvidia-container-devices/…`, which NVIDIA's toolkit takes for a request
where it is told to. It reads only the options before the image, and no variable or function that
stands for the command. It also finds such a variable in `kubectl set env`, in files of CI systems
the variable itself, which runners hand to the containers of their jobs, and in units of Podman's
Quadlet (`.container`) the keys that stand for such options, such as `AddDevice`.

Why it matters
--------------
On a node of a cluster the scheduler does not know of these containers: it gives the same GPUs to
pods. On other machines there is nothing wrong with it; then leave scripts out, or set the action of
this rule to `off`.

References
----------
- https://docs.docker.com/reference/cli/docker/container/run/
- https://docs.podman.io/en/latest/markdown/podman-systemd.unit.5.html
"""

from rules.gpu.commands.container_tools import findings_of_uncounted_gpus
from rules.rule import Action, ContainerSetting, Context, Findings, define_rule

MESSAGE_TEMPLATE = "{holder} gives a container GPUs by {what}, which no scheduler counts"


def check(setting: ContainerSetting, _context: Context) -> Findings:
    """Yield the option if it gives a container a GPU."""
    return findings_of_uncounted_gpus(setting, MESSAGE_TEMPLATE)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=())
