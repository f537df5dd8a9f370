"""The two webhook configurations: which objects API servers send to which path.

There is one entry for each mode, and the label of a namespace selects the entry. So the API server
itself finds the mode of a namespace, and the webhook never has to ask the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from rules.finding import Action

MODES = (Action.DENY, Action.WARN, Action.AUDIT)


class Route(NamedTuple):
    """The webhook of a path, `mutate` or `validate`, and the mode."""

    webhook: str
    mode: Action


ROUTES = {
    f"/{webhook}/{mode.word}": Route(webhook, mode)
    for webhook in ("mutate", "validate")
    for mode in MODES
}


WEBHOOK_NAME_SUFFIX = ".gpuward.io"
"""The end of the names of all webhooks of gpuward."""
MODE_LABEL = "gpuward.io/mode"
NAME_LABEL = "kubernetes.io/metadata.name"
# Excluded, because an outage of the webhook must not keep a cluster from starting.
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")

# Kinds that create pods, by group. Custom kinds are registered in all versions.
BUILT_IN_WORKLOADS = {
    "": ("podtemplates", "replicationcontrollers"),
    "apps": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "batch": ("cronjobs", "jobs"),
}
CUSTOM_WORKLOADS = {
    "apps.kruise.io": ("clonesets", "statefulsets"),
    "apps.nvidia.com": ("nimcaches", "nimpipelines", "nimservices"),
    "argoproj.io": ("cronworkflows", "rollouts", "workflows", "workflowtemplates"),
    "batch.volcano.sh": ("jobs",),
    "jobset.x-k8s.io": ("jobsets",),
    "kubeflow.org": (
        *("jaxjobs", "mpijobs", "notebooks", "paddlejobs"),
        *("pytorchjobs", "tfjobs", "xgboostjobs"),
    ),
    "leaderworkerset.x-k8s.io": ("leaderworkersets",),
    "nvidia.com": ("dynamocomponentdeployments", "dynamographdeployments"),
    "ome.io": ("inferenceservices", "servingruntimes"),
    "ray.io": ("rayclusters", "rayjobs", "rayservices"),
    "serving.knative.dev": ("services",),
    "serving.kserve.io": ("inferenceservices", "llminferenceservices", "servingruntimes"),
    "serving.kubeflow.org": ("inferenceservices",),
    "slinky.slurm.net": ("nodesets",),
    "sparkoperator.k8s.io": ("scheduledsparkapplications", "sparkapplications"),
    "tekton.dev": ("pipelineruns", "pipelines", "taskruns", "tasks"),
    "trainer.kubeflow.org": ("trainingruntimes", "trainjobs"),
    "workload.serving.volcano.sh": ("modelboosters",),
}


class RegistrationOptions(NamedTuple):
    """The options of an installation.

    - `default`: the mode of namespaces without a label, or with an unknown value.
    - `minimum`: the weakest mode that the label of a namespace can choose.
    - `failure_policy`: for pods, quotas, LimitRanges and resource claims. For workloads it is
      always Ignore, because their pods are evaluated anyway.
    """

    default: Action = Action.WARN
    minimum: Action = Action.OFF
    failure_policy: Literal["Ignore", "Fail"] = "Ignore"
    timeout_seconds: int = 3
    excluded_namespaces: tuple[str, ...] = ()


def configurations(
    name: str, client_config: Callable[[str], dict[str, Any]], options: RegistrationOptions
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The mutating and the validating webhook configuration, both with the name `name`.

    `client_config` returns the `clientConfig` for a path such as `/mutate/deny`. ValueError if the
    default mode is weaker than the minimum.
    """
    modes = mode_selectors(options)
    mutating = [
        entry
        for mode, selector in modes
        for entry in _mutating_webhooks(mode, selector, client_config, options)
    ]
    validating = [
        _webhook_entry(
            mode.word,
            [*_pod_rules("CREATE", "UPDATE"), _claim_rule()],
            client_config(f"/validate/{mode.word}"),
        )
        | {"namespaceSelector": selector, "failurePolicy": options.failure_policy}
        | {"timeoutSeconds": options.timeout_seconds}
        for mode, selector in modes
    ]
    return (
        _configuration("MutatingWebhookConfiguration", name, mutating),
        _configuration("ValidatingWebhookConfiguration", name, validating),
    )


def effective_mode(label: str | None, options: RegistrationOptions) -> Action:
    """The mode of a namespace whose label has the value `label`, as the selectors choose it."""
    named = {mode.word: mode for mode in Action}
    mode = named.get(label or "", options.default)
    return max(mode, options.minimum)


def mode_selectors(options: RegistrationOptions) -> list[tuple[Action, dict[str, Any]]]:
    """Each mode that a namespace can have, with the namespaceSelector for it."""
    if options.default < options.minimum:
        raise ValueError("the default mode is weaker than the minimum")
    labels_by_mode: dict[Action, list[str]] = {}
    for label in sorted(mode.word for mode in Action):
        labels_by_mode.setdefault(effective_mode(label, options), []).append(label)
    other_labels = sorted(
        w for mode, words in labels_by_mode.items() if mode != options.default for w in words
    )
    excluded = {"key": NAME_LABEL, "operator": "NotIn"}
    names = sorted({*SYSTEM_NAMESPACES, *options.excluded_namespaces})
    selected = []
    for mode in MODES:
        if mode == options.default:
            # Unknown values of the label also select the default mode.
            chosen = {"key": MODE_LABEL, "operator": "NotIn", "values": other_labels}
        elif mode in labels_by_mode:
            chosen = {"key": MODE_LABEL, "operator": "In", "values": labels_by_mode[mode]}
        else:
            continue
        terms = [{**excluded, "values": names}, *([chosen] if chosen["values"] else [])]
        selected.append((mode, {"matchExpressions": terms}))
    return selected


def _mutating_webhooks(
    mode: Action,
    selector: dict[str, Any],
    client_config: Callable[[str], dict[str, Any]],
    options: RegistrationOptions,
) -> Iterable[dict[str, Any]]:
    target = client_config(f"/mutate/{mode.word}")
    common = {
        "namespaceSelector": selector,
        "timeoutSeconds": options.timeout_seconds,
        "reinvocationPolicy": "IfNeeded",
    }
    pods = _webhook_entry(f"pods.{mode.word}", _pod_rules("CREATE"), target)
    yield pods | common | {"failurePolicy": options.failure_policy}
    workloads = _webhook_entry(f"workloads.{mode.word}", _workload_rules(), target)
    yield workloads | common | {"failurePolicy": "Ignore"}


def _webhook_entry(
    name: str, rules: list[dict[str, Any]], target: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": f"{name}{WEBHOOK_NAME_SUFFIX}",
        "admissionReviewVersions": ["v1"],
        "clientConfig": target,
        "matchPolicy": "Equivalent",
        "objectSelector": {},
        "rules": rules,
        "sideEffects": "None",
    }


def _pod_rules(*operations: str) -> list[dict[str, Any]]:
    return [
        _webhook_rule("", ("pods",), operations),
        _webhook_rule("", ("pods/ephemeralcontainers",), ("UPDATE",)),
        _webhook_rule("", ("limitranges", "resourcequotas"), ("CREATE", "UPDATE")),
    ]


def _claim_rule() -> dict[str, Any]:
    """Claims for devices. Their specs cannot change, and their status is not gpuward's business."""
    return _webhook_rule(
        "resource.k8s.io", ("resourceclaims", "resourceclaimtemplates"), ("CREATE",), "*"
    )


def _workload_rules() -> list[dict[str, Any]]:
    built_in = [
        _webhook_rule(g, names, ("CREATE", "UPDATE")) for g, names in BUILT_IN_WORKLOADS.items()
    ]
    custom = [
        _webhook_rule(g, names, ("CREATE", "UPDATE"), "*") for g, names in CUSTOM_WORKLOADS.items()
    ]
    return built_in + custom


def _webhook_rule(
    group: str, resources: Iterable[str], operations: Iterable[str], version: str = "v1"
) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": list(resources),
        "scope": "Namespaced",
    }


def _configuration(kind: str, name: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    }
