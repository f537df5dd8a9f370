"""A ConfigMap or Secret has a key with the name of a variable that gives devices.

What it does
------------
Finds keys of ConfigMaps and Secrets that are `NVIDIA_VISIBLE_DEVICES`, a corresponding variable of
another maker, one that a profile lists as an alternative, such as `DOCKER_RESOURCE_GPU`, or
`CUDA_VERSION`, by which an image looks older than the first. So are those by which NVIDIA's toolkit
gives other devices, such as `NVIDIA_MOFED` and `NVIDIA_MIG_CONFIG_DEVICES`, and those that lift the
limits of shares, such as `CUDA_DISABLE_CONTROL` and `CGPU_DISABLE`. The rule reads the keys of
`data`, `stringData` and `binaryData`, and no value: so it says the same of ConfigMaps and of
Secrets, whose values are no business of it. From `binaryData` kubelets take no variables today.

The rule is off by default and in every bundle. It evaluates files, and at admission the policies
that [`gpuward export vap`](../in-process.md#keys-of-configmaps-and-secrets) writes: API servers
evaluate these themselves, and send neither ConfigMaps nor Secrets to the webhook, which may not
read Secrets either. **Without the exported policies it has no effect in a cluster.**

An update is about the keys that it adds, so an object with such a key can still be changed. Pipe
`kubectl get configmaps,secrets -A -o json` into `gpuward lint -` to find the objects that exist.

In files it also finds such keys of SealedSecrets (`encryptedData` and the data of the template) and
of the template in an ExternalSecret, of which controllers make Secrets. What such a controller
takes from elsewhere it finds only at admission, in the Secret, and what a kustomization generates
only with `--render`.

An exception of the policy may name the namespace, the kind and the name of the object.

A reference to a single key (`valueFrom`) and a prefix that a key completes are in the pod, so
[visible-devices-valuefrom](visible-devices-valuefrom.md) and
[visible-devices-envfrom](visible-devices-envfrom.md) report them there. What a container takes from
a whole object, [visible-devices-configmap](visible-devices-configmap.md) finds only in ConfigMaps
that the webhook's inventory has, and in files of the same run.

Why it matters
--------------
A container that takes its variables from the object by `envFrom` gets every GPU of its node, other
devices, or more of a card than its share, and nothing in its pod shows it.

Options
-------
`writers`: the users who may write such keys, with `*` for any text. KAI's binder is one, where the
scheduler gives parts of cards to pods: `system:serviceaccount:kai-scheduler:binder`. The linter
knows no user, and reports the key.

References
----------
- https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#environment-variables
- kubernetes/kubernetes, `pkg/kubelet/kubelet_pods.go` (`makeEnvironmentVariables`)
- NVIDIA container toolkit, `internal/config/image/cuda_image.go`
- kai-scheduler/KAI-Scheduler, `pkg/binder/common/gpu_access.go`
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import display
from rules.base.text_matching import matches_any
from rules.base.traits import VARIABLE_KEY
from rules.in_process.expression import REQUEST, text
from rules.in_process.patterns import matches_any as matches_any_in_cel
from rules.in_process.statement import KEY, KeyStatement, shown
from rules.profile.profile import Profile
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule
from rules.workloads.object_kinds import granting_keys, granting_variables

ADVICE = (
    "remove the key, or ask whoever keeps the policy for an exception; the option `writers` names "
    "who may write it"
)


def check(subject: KubernetesObject, context: Context) -> Findings:
    """Yield each key that is a variable by which a container gets GPUs."""
    user = context.user
    if user is not None and matches_any(context.options["writers"], user):
        return
    owner = subject.object
    for path, key in granting_keys(subject.raw, owner.group, owner.kind, subject.profile):
        yield Finding(
            path=(*subject.path, *path),
            key=key,
            message=_message(owner.kind, display(key)),
            help=ADVICE,
        )


def _message(kind: object, key: object) -> str:
    return (
        f"the {kind} has the key {key}: a container that takes its variables from it may get "
        "devices that the scheduler has not counted, and its pod does not show it"
    )


def in_process(options: Mapping[str, Any], profile: Profile) -> KeyStatement:
    """`check` in CEL."""
    return KeyStatement(
        patterns=granting_variables(profile),
        message=text(_message(REQUEST.kind.kind, shown(KEY))),
        help=ADVICE,
        is_excused=matches_any_in_cel(REQUEST.userInfo.username, options["writers"]),
    )


RULE = define_rule(
    check, action=Action.OFF, since="0.1", needs=(VARIABLE_KEY,), options={"writers": ()}
)
