"""Pods that are padded: with as much of each thing as API servers look at by themselves."""

from __future__ import annotations

from typing import Any

from tests.testkit.admission.reviews import pod
from tools.match_bounds import LONGEST, MOST

# The label of nodes whose values are looked at, and a value that means no GPU.
MACHINE = "node.kubernetes.io/instance-type"
OTHER_MACHINE = "x" * LONGEST["value"]
NATIVE = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
SPREADS = "topologySpreadConstraints"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def key(number: int, more: int = 0) -> str:
    """A key of an annotation or a label, as long as those that are looked at, or longer."""
    domain = f"{number}.example.com".rjust(LONGEST["key"] - 64 + more, "x")
    return f"{domain}/{'x' * 63}"


def variable(number: int, more: int = 0) -> dict[str, Any]:
    """A variable with the longest name that is looked at, or a longer one."""
    return {"name": f"X{number}".ljust(LONGEST["variable"] + more, "X"), "value": "1"}


def image(more: int = 0) -> str:
    """The longest name of an image that is looked at, or a longer one."""
    return "registry.example.com/".ljust(LONGEST["image"] + more, "x")


def source(number: int) -> dict[str, Any]:
    """An entry of `envFrom`."""
    return {"configMapRef": {"name": f"m-{number}"}}


def volume(number: int) -> dict[str, Any]:
    """A volume."""
    return {"name": f"v-{number}", "emptyDir": {}}


def container(number: int) -> dict[str, Any]:
    """A container that asks for all that is Kubernetes' own, with as long an image as may be."""
    resources = {"limits": dict(NATIVE), "requests": dict(NATIVE)}
    fields = {"resources": resources, "env": [], "envFrom": []}
    return {"name": f"c-{number}", "image": image(), **fields}


def expression(values: int) -> dict[str, Any]:
    """A demand on the type of the machine."""
    return {"key": MACHINE, "operator": "In", "values": [OTHER_MACHINE] * values}


def placed(terms: list[list[Any]]) -> dict[str, Any]:
    """An affinity to nodes, of these terms."""
    listed = [{"matchExpressions": expressions} for expressions in terms]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": listed}}}


def spread(number: int) -> dict[str, Any]:
    """A demand that pods be spread over nodes that have a label."""
    return {"maxSkew": 1, "topologyKey": key(number), "whenUnsatisfiable": "DoNotSchedule"}


def near(number: int) -> dict[str, Any]:
    """A demand for other pods on nodes with the same label."""
    return {"topologyKey": key(number)}


def full() -> Any:
    """A pod that has the most of everything, and nothing that concerns a rule."""
    whole = pod(**_containers())
    spec, metadata = whole["spec"], whole["metadata"]
    spec["automountServiceAccountToken"] = False  # or it would have one volume more
    spec["volumes"] = [volume(number) for number in range(MOST["volumes"])]
    keys = map(key, range(MOST["nodeSelector"] - 1))
    spec["nodeSelector"] = {MACHINE: OTHER_MACHINE, **dict.fromkeys(keys, OTHER_MACHINE)}
    one = expression(MOST["values"] // MOST["expressions"])
    spec["affinity"] = placed([[one] for _ in range(MOST["terms"])])
    spec["affinity"]["podAffinity"] = {REQUIRED: [near(n) for n in range(MOST["podAffinity"])]}
    spec[SPREADS] = [spread(number) for number in range(MOST[SPREADS])]
    for field in ("annotations", "labels"):
        metadata[field] = dict.fromkeys(map(key, range(MOST[field])), "x")
    return whole


def _containers() -> dict[str, Any]:
    made = [container(number) for number in range(MOST["containers"])]
    for number in range(MOST["variables"]):
        made[number % len(made)]["env"].append(variable(number))
    for number in range(MOST["sources"]):
        made[number % len(made)]["envFrom"].append(source(number))
    half = len(made) // 2
    return {"initContainers": made[:half], "containers": made[half:]}


def one_more(name: str) -> Any:
    """The fullest pod with one more of what `MOST` or `LONGEST` calls so."""
    whole = full()
    spec, metadata = whole["spec"], whole["metadata"]
    last = spec["containers"][-1]
    if name in metadata:
        metadata[name]["example.com/one-more"] = "x"
    elif name == "nodeSelector":
        spec[name]["example.com/one-more"] = "x"
    elif name in ("terms", "expressions", "values"):
        _widen(spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"], name)
    elif name == "key":
        metadata["labels"][key(0, more=1)] = metadata["labels"].pop(key(0))
    elif name == "value":
        spec["nodeSelector"][MACHINE] += "x"
    elif name == "image":
        last["image"] = image(more=1)
    elif name == "variable":
        last["env"][-1] = variable(0, more=1)
    elif name == "containers":
        spec["containers"].append({"name": "one-more", "image": "a"})
    else:
        held = {"variables": last["env"], "sources": last["envFrom"], "volumes": spec["volumes"]}
        held |= {SPREADS: spec[SPREADS], "podAffinity": spec["affinity"]["podAffinity"][REQUIRED]}
        made = {"variables": variable, "sources": source, "volumes": volume}
        made |= {SPREADS: spread, "podAffinity": near}
        held[name].append(made[name](MOST[name]))
    return whole


def _widen(terms: list[dict[str, Any]], name: str) -> None:
    """One term, expression or value more, and none of the others."""
    first = terms[0]["matchExpressions"]
    if name == "values":
        first[0]["values"].append(OTHER_MACHINE)
    elif name == "expressions":
        first.append({"key": "example.com/one-more", "operator": "Exists"})
    else:
        terms.append({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})
