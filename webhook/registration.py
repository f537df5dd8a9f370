"""What the API server is asked to send us: the two webhook configurations.

A namespace's mode is resolved by the API server itself: there is one entry a mode, and the
label of the namespace selects the entry, so that no answer ever needs a look at the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from rules.finding import Action
from webhook.routes import MODES

MODE_LABEL = "gpuward.io/mode"
NAME_LABEL = "kubernetes.io/metadata.name"
# Never ours: a fault here would keep a cluster from starting.
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")

# Kinds that make pods, by group. Custom kinds come and go in versions, built-in ones do not.
BUILT_IN_WORKLOADS = {
    "": ("podtemplates", "replicationcontrollers"),
    "apps": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "batch": ("cronjobs", "jobs"),
}
CUSTOM_WORKLOADS = {
    "apps.kruise.io": ("clonesets", "statefulsets"),
    "apps.nvidia.com": ("nimservices",),
    "argoproj.io": ("cronworkflows", "rollouts", "workflows", "workflowtemplates"),
    "batch.volcano.sh": ("jobs",),
    "jobset.x-k8s.io": ("jobsets",),
    "kubeflow.org": (
        *("jaxjobs", "mpijobs", "notebooks", "paddlejobs"),
        *("pytorchjobs", "tfjobs", "xgboostjobs"),
    ),
    "leaderworkerset.x-k8s.io": ("leaderworkersets",),
    "ray.io": ("rayclusters", "rayjobs", "rayservices"),
    "serving.knative.dev": ("services",),
    "serving.kserve.io": ("inferenceservices", "llminferenceservices", "servingruntimes"),
    "sparkoperator.k8s.io": ("scheduledsparkapplications", "sparkapplications"),
    "tekton.dev": ("taskruns", "tasks"),
    "trainer.kubeflow.org": ("trainingruntimes", "trainjobs"),
}


class Registration(NamedTuple):
    """The choices of an installation.

    `default` is the mode of namespaces that name none, or none that is known; `minimum` is
    the floor below which a namespace's label does not reach. What is only warned about is
    never held up by our absence, whatever the `failure_policy`.
    """

    default: Action = Action.WARN
    minimum: Action = Action.OFF
    failure_policy: Literal["Ignore", "Fail"] = "Ignore"
    timeout_seconds: int = 3
    excluded_namespaces: tuple[str, ...] = ()


def configurations(
    name: str, client_config: Callable[[str], dict[str, Any]], choices: Registration
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The mutating and the validating webhook configuration, both called `name`.

    `client_config` gives the `clientConfig` for a path such as `/mutate/deny`. ValueError if
    the default lies below the minimum.
    """
    modes = _selected(choices)
    mutating = [
        entry
        for mode, selector in modes
        for entry in _mutating(mode, selector, client_config, choices)
    ]
    validating = [
        _entry(mode.word, _pods("CREATE", "UPDATE"), client_config(f"/validate/{mode.word}"))
        | {"namespaceSelector": selector, "failurePolicy": choices.failure_policy}
        | {"timeoutSeconds": choices.timeout_seconds}
        for mode, selector in modes
    ]
    return (
        _configuration("MutatingWebhookConfiguration", name, mutating),
        _configuration("ValidatingWebhookConfiguration", name, validating),
    )


def effective(label: str | None, choices: Registration) -> Action:
    """The mode of a namespace that carries `label`: what the selectors amount to."""
    named = {mode.word: mode for mode in Action}
    mode = named.get(label or "", choices.default)
    return max(mode, choices.minimum)


def _selected(choices: Registration) -> list[tuple[Action, dict[str, Any]]]:
    """Each mode that anything can be in, with the namespaceSelector that leads to it."""
    if choices.default < choices.minimum:
        raise ValueError("the default mode lies below the minimum")
    leading: dict[Action, list[str]] = {}
    for label in sorted(mode.word for mode in Action):
        leading.setdefault(effective(label, choices), []).append(label)
    elsewhere = sorted(
        w for mode, words in leading.items() if mode != choices.default for w in words
    )
    away = {"key": NAME_LABEL, "operator": "NotIn"}
    names = sorted({*SYSTEM_NAMESPACES, *choices.excluded_namespaces})
    selected = []
    for mode in MODES:
        if mode == choices.default:
            # Whatever is misspelt falls in here and not into nothing.
            chosen = {"key": MODE_LABEL, "operator": "NotIn", "values": elsewhere}
        elif mode in leading:
            chosen = {"key": MODE_LABEL, "operator": "In", "values": leading[mode]}
        else:
            continue
        terms = [{**away, "values": names}, *([chosen] if chosen["values"] else [])]
        selected.append((mode, {"matchExpressions": terms}))
    return selected


def _mutating(
    mode: Action,
    selector: dict[str, Any],
    client_config: Callable[[str], dict[str, Any]],
    choices: Registration,
) -> Iterable[dict[str, Any]]:
    target = client_config(f"/mutate/{mode.word}")
    common = {
        "namespaceSelector": selector,
        "timeoutSeconds": choices.timeout_seconds,
        "reinvocationPolicy": "IfNeeded",
    }
    pods = _entry(f"pods.{mode.word}", _pods("CREATE"), target)
    yield pods | common | {"failurePolicy": choices.failure_policy}
    workloads = _entry(f"workloads.{mode.word}", _workloads(), target)
    yield workloads | common | {"failurePolicy": "Ignore"}


def _entry(name: str, rules: list[dict[str, Any]], target: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": f"{name}.gpuward.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": target,
        "matchPolicy": "Equivalent",
        "objectSelector": {},
        "rules": rules,
        "sideEffects": "None",
    }


def _pods(*operations: str) -> list[dict[str, Any]]:
    return [
        _rule("", ("pods",), operations),
        _rule("", ("pods/ephemeralcontainers",), ("UPDATE",)),
        _rule("", ("resourcequotas",), ("CREATE", "UPDATE")),
    ]


def _workloads() -> list[dict[str, Any]]:
    built_in = [_rule(g, names, ("CREATE", "UPDATE")) for g, names in BUILT_IN_WORKLOADS.items()]
    custom = [_rule(g, names, ("CREATE", "UPDATE"), "*") for g, names in CUSTOM_WORKLOADS.items()]
    return built_in + custom


def _rule(
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
