"""Pods of the largest size for which the API server evaluates the match condition in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rules.relevance.expressions import LONGEST, MOST, MOST_PREFERRED
from tests.testkit.admission.reviews import pod
from webhook.match_conditions import MOST_OWN_NAMES

# A node label whose values the condition reads, and a value that means no GPU.
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
OTHER_INSTANCE_TYPE = "x" * LONGEST["value"]
NATIVE = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
SPREADS = "topologySpreadConstraints"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PREFERENCES = "preferred "
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# How many times the API server can evaluate the condition for the largest pod within its cost
# limit: without custom names, and with as many of the most expensive kind as the chart adds.
COST_FACTOR, COST_FACTOR_WITH_OWN_NAMES = 4, 2
CUSTOM_PROFILE = {
    "name": "own",
    "alternativeVariables": [f"OUR_{n}_*" for n in range(MOST_OWN_NAMES)],
}


def repeated(condition: str, times: int) -> str:
    """The condition, evaluated `times` times if it does not hold."""
    return f"{[0] * times}.exists(turn,\n{condition}\n)"


def key(number: int, more: int = 0) -> str:
    """A key of an annotation or a label of the longest evaluated length, or a longer one."""
    domain = f"{number}.example.com".rjust(LONGEST["key"] - 64 + more, "x")
    return f"{domain}/{'x' * 63}"


def variable(number: int, more: int = 0) -> dict[str, Any]:
    """A variable with the longest name that is evaluated, or a longer one."""
    return {"name": f"X{number}".ljust(LONGEST["variable"] + more, "X"), "value": "1"}


def image(more: int = 0) -> str:
    """The longest image name that is evaluated, or a longer one."""
    return "registry.example.com/".ljust(LONGEST["image"] + more, "x")


def word(more: int = 0) -> str:
    """The longest word of a command that is evaluated, or a longer one."""
    return "x" * (LONGEST["word"] + more)


def source(number: int) -> dict[str, Any]:
    """An entry of `envFrom`."""
    return {"configMapRef": {"name": f"m-{number}"}}


def mount(number: int, more: int = 0) -> dict[str, Any]:
    """A mount of a volume at the longest path that is evaluated, or a longer one."""
    path = f"/mnt/{number}/".ljust(LONGEST["mount"] + more, "x")
    return {"name": f"v-{number % MOST['volumes']}", "mountPath": path}


def volume(number: int) -> dict[str, Any]:
    """A volume."""
    return {"name": f"v-{number}", "emptyDir": {}}


def container(number: int) -> dict[str, Any]:
    """A privileged container with every built-in resource and the longest names."""
    resources = {"limits": dict(NATIVE), "requests": dict(NATIVE)}
    fields: dict[str, Any] = {
        "command": [word()] * MOST["words"],
        "args": [word()] * MOST["words"],
        "securityContext": {"privileged": True},
    }
    fields |= {"resources": resources, "env": [], "envFrom": [], "volumeMounts": []}
    return {"name": f"c-{number}", "image": image(), **fields}


def expression(values: int) -> dict[str, Any]:
    """A node selector requirement on the instance type."""
    return {"key": INSTANCE_TYPE, "operator": "In", "values": [OTHER_INSTANCE_TYPE] * values}


def node_affinity(terms: list[list[Any]]) -> dict[str, Any]:
    """A required node affinity with these terms, each a list of expressions."""
    selector_terms = [{"matchExpressions": expressions} for expressions in terms]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": selector_terms}}}


def spread(number: int) -> dict[str, Any]:
    """A required topology spread constraint over a node label."""
    return {"maxSkew": 1, "topologyKey": key(number), "whenUnsatisfiable": "DoNotSchedule"}


def toleration(number: int) -> dict[str, Any]:
    """A toleration of one taint."""
    return {"key": key(number), "operator": "Exists", "effect": "NoSchedule"}


def pod_affinity_term(number: int) -> dict[str, Any]:
    """A pod affinity term over a node label."""
    return {"topologyKey": key(number)}


def largest_pod() -> Any:
    """A pod with the largest evaluated number of everything, and nothing that a rule checks."""
    manifest = pod(**_containers())
    spec, metadata = manifest["spec"], manifest["metadata"]
    spec["automountServiceAccountToken"] = False  # or it would have one volume more
    spec["volumes"] = [volume(number) for number in range(MOST["volumes"])]
    keys = map(key, range(MOST["nodeSelector"] - 1))
    spec["nodeSelector"] = {
        INSTANCE_TYPE: OTHER_INSTANCE_TYPE,
        **dict.fromkeys(keys, OTHER_INSTANCE_TYPE),
    }
    preferred = expression(MOST_PREFERRED["values"] // MOST_PREFERRED["expressions"])
    one = expression(MOST["values"] // MOST["expressions"])
    spec["affinity"] = node_affinity([[one] for _ in range(MOST["terms"])])
    spec["affinity"]["nodeAffinity"][PREFERRED] = [
        {"weight": 1, "preference": {"matchExpressions": [preferred]}}
        for _ in range(MOST_PREFERRED["terms"])
    ]
    # The API server adds two tolerations.
    spec["tolerations"] = [toleration(number) for number in range(MOST["tolerations"] - 2)]
    spec["affinity"]["podAffinity"] = {
        REQUIRED: [pod_affinity_term(n) for n in range(MOST["podAffinity"])]
    }
    spec[SPREADS] = [spread(number) for number in range(MOST[SPREADS])]
    for field in ("annotations", "labels"):
        metadata[field] = dict.fromkeys(map(key, range(MOST[field])), "x")
    return manifest


def _containers() -> dict[str, Any]:
    makers = [container(number) for number in range(MOST["containers"])]
    for number in range(MOST["variables"]):
        makers[number % len(makers)]["env"].append(variable(number))
    for number in range(MOST["mounts"]):
        makers[number % len(makers)]["volumeMounts"].append(mount(number))
    for number in range(MOST["sources"]):
        makers[number % len(makers)]["envFrom"].append(source(number))
    half = len(makers) // 2
    return {"initContainers": makers[:half], "containers": makers[half:]}


def pod_above_bound(name: str) -> Any:
    """The largest pod, one above the bound called `name` in `MOST` or `LONGEST`."""
    manifest = largest_pod()
    spec, metadata = manifest["spec"], manifest["metadata"]
    last = spec["containers"][-1]
    if name in metadata:
        metadata[name]["example.com/one-more"] = "x"
    elif name == "nodeSelector":
        spec[name]["example.com/one-more"] = "x"
    elif name in ("terms", "expressions", "values"):
        _extend_affinity(spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"], name)
    elif name.startswith(PREFERENCES):
        preferences = spec["affinity"]["nodeAffinity"][PREFERRED]
        _extend_preferences(preferences, name.removeprefix(PREFERENCES))
    elif name == "key":
        metadata["labels"][key(0, more=1)] = metadata["labels"].pop(key(0))
    elif name == "value":
        spec["nodeSelector"][INSTANCE_TYPE] += "x"
    elif name in ("image", "mount", "variable", "word"):
        last["args"][-1] = word(more=int(name == "word"))
        last["image"] = image(more=int(name == "image"))
        last["volumeMounts"][-1] = mount(0, more=int(name == "mount"))
        last["env"][-1] = variable(0, more=int(name == "variable"))
    elif name == "containers":
        spec["containers"].append({"name": "one-more", "image": "a"})
    else:
        lists = {"variables": last["env"], "sources": last["envFrom"], "volumes": spec["volumes"]}
        lists |= {"mounts": last["volumeMounts"], "words": last["args"]}
        lists |= {SPREADS: spec[SPREADS], "podAffinity": spec["affinity"]["podAffinity"][REQUIRED]}
        lists |= {"tolerations": spec["tolerations"]}
        makers: dict[str, Callable[[int], Any]] = {"words": lambda _: word()}
        makers |= {"variables": variable, "sources": source, "volumes": volume, "mounts": mount}
        makers |= {"tolerations": toleration}
        makers |= {SPREADS: spread, "podAffinity": pod_affinity_term}
        lists[name].append(makers[name](MOST[name]))
    return manifest


def _extend_preferences(preferences: list[dict[str, Any]], name: str) -> None:
    """Add one term, expression or value, and none of the others."""
    terms = [choice["preference"] for choice in preferences]
    _extend_affinity(terms, name)
    preferences += [{"weight": 1, "preference": term} for term in terms[len(preferences) :]]


def _extend_affinity(terms: list[dict[str, Any]], name: str) -> None:
    """Add one term, expression or value, and none of the others."""
    first = terms[0]["matchExpressions"]
    if name == "values":
        first[0]["values"].append(OTHER_INSTANCE_TYPE)
    elif name == "expressions":
        first.append({"key": "example.com/one-more", "operator": "Exists"})
    else:
        terms.append({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})
