"""The files that `init` writes: a policy, values of the chart, and a quota for priorities."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from cluster.init import differences
from cluster.init.choice import Choice, ancestors, nodes_named
from cluster.init.differences import Entry, is_component, runtime_classes
from cluster.init.facts import InitFacts, Node, Workload
from cluster.source.objects import (
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    MUTATING,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SLICES,
    VALIDATING,
    Resource,
)
from cluster.webhooks.callers import Callers
from cluster.webhooks.dry_runs import NotTried
from kubeyaml.patch.layout import one_line_text
from policies.profiles import ProfileError, built_in_profiles, merged_profile
from policies.validation import MAX_NODE_LABELS
from rules.placement.exclusion import is_gpu_node, label_texts, labels_of_gpu_nodes
from rules.placement.node_labels import MODE_LABEL
from rules.placement.selected_cards import NODE_POOL_LABELS
from rules.profile.profile import Profile
from terminal import DOCS_URL, printable

# Lines of YAML, each with the evidence for it as a comment.

_WIDTH = 100
_BEHIND = "  # "


def line(text: str, why: str, indent: int = 0) -> str:
    """A line, with the reason for it."""
    return f"{' ' * indent}{text}{_BEHIND}{why}"


def without_evidence(text: str) -> str:
    """A line without the reason for it."""
    return text.partition(_BEHIND)[0].rstrip("\r\n")


def item(value: object, why: str, indent: int) -> str:
    """An item of a list."""
    return line(f"- {one_line_text(value)}", why, indent)


def commented(lines: Sequence[str]) -> list[str]:
    """Lines that are there to be uncommented: without the first `# ` they are YAML."""
    return [f"# {text}" for text in lines]


def note(text: str) -> list[str]:
    """A comment of its own, wrapped."""
    return [f"# {part}" for part in textwrap.wrap(text, _WIDTH - 2, break_on_hyphens=False)]


def section(key: str, certain: Sequence[str], possible: Sequence[str], indent: int) -> list[str]:
    """A key with its lines; those that are `possible` are commented out."""
    if not certain and not possible:
        return []
    head = f"{' ' * indent}{key}:"
    return [*([head] if certain else commented([head])), *certain, *commented(possible)]


_NAME = "cluster"  # of the profile that is written
# What a profile replaces if it extends others.
_REPLACED = ("taints", "affinities", "schedulers")
_MAX_NAMED = 20


def write_policy(facts: InitFacts, choice: Choice) -> tuple[list[str], Profile]:
    """The lines of the policy, and its profile as far as it is certain."""
    names = list(choice.chosen)
    combined = _combined(names)
    profile = merged_profile(combined)
    new = {
        "taints": differences.taints(facts, profile),
        "affinities": [],
        "schedulers": differences.schedulers(facts, profile),
        "components": differences.components(facts, profile),
        "runtimeClasses": differences.runtime_classes(facts, profile),
    }
    tables = {
        "nodeModes": differences.node_modes(facts, profile),
        "resources": differences.resources(facts, profile),
    }
    # Of several profiles that one extends, the last replaces what the others say.
    differs = any(new.values()) or any(tables.values()) or combined != names
    replaces = differs and len(names) > 1
    sections = {
        key: [*_known(names, key), *entries]
        if key in _REPLACED and (replaces or entries)
        else entries
        for key, entries in new.items()
    }
    body = [
        *(text for key, entries in sections.items() for text in _list(key, entries)),
        *(text for key, entries in tables.items() for text in _table(key, entries)),
    ]
    lines = ["apiVersion: gpuward.io/v1", "kind: Policy"]
    if not names:
        lines += _nothing(choice)
    elif not body:
        lines += ["profiles:", *_names(choice, 2)]
    else:
        why = "the built-in profiles below, and what differs from them here"
        lines += ["profiles:", line(f"- name: {_NAME}", why, 2)]
        lines += ["    extends:", *_names(choice, 6), *body]
    lines += _remarks(facts, profile)
    lines += _exclusion(facts, profile)
    return lines, profile


def _exclusion(facts: InitFacts, profile: Profile) -> list[str]:
    """The lines of a rule that keeps pods without a GPU off GPU nodes, and who needs an exception.

    None, unless the nodes with GPUs are those with the labels that the profile names, or with those
    of node pools.
    """
    with_gpus = [node for node in facts.nodes if any(map(profile.resource, node.resources))]
    if not with_gpus or len(with_gpus) == len(facts.nodes):
        return []
    for listed in ((), *_pools(with_gpus)):
        labels = labels_of_gpu_nodes(profile, listed)
        if with_gpus == [node for node in facts.nodes if is_gpu_node(node.labels, labels)]:
            break
    else:
        return []
    settings = {"action": "deny", **({"options": {"nodes": list(listed)}} if listed else {})}
    why = f"{label_texts(labels)} is on {nodes_named(with_gpus)}, and not on others: must pods "
    why += f"without a GPU run elsewhere? {DOCS_URL}/exclusion.md"
    agents = [
        line(f"- {one_line_text(_exception(each))}", _AGENT.format(workload=each), 2)
        for each in facts.daemon_sets
        if each.namespace not in _ALWAYS_EXCLUDED
        and not is_component(profile, each.namespace, each.service_account)
        and each.images
        and all(each.images)
    ]
    return commented(
        [
            "workloads: fix",
            "rules:",
            line(f"{_EXCLUSION_RULE}: {one_line_text(settings)}", why, 2),
            *(["exceptions:", *agents] if agents else []),
        ]
    )


# Clouds and autoscalers write them onto a node when it joins the cluster.
_POOL_LABELS = (
    *("cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "karpenter.sh/nodepool"),
    *("kubernetes.azure.com/agentpool", "ibm-cloud.kubernetes.io/worker-pool-name"),
    *("doks.digitalocean.com/node-pool", *NODE_POOL_LABELS),
)


def _pools(nodes: Sequence[Node]) -> Iterator[tuple[str, ...]]:
    """Yield the labels of the pools of all these nodes, for each key that may name a pool."""
    for key in _POOL_LABELS:
        values = sorted({node.labels.get(key, "") for node in nodes})
        if all(values) and len(values) <= MAX_NODE_LABELS:
            yield tuple(f"{key}={value}" for value in values)


def _exception(workload: Workload) -> dict[str, Any]:
    match = {
        "namespace": workload.namespace,
        "serviceAccount": workload.service_account,
        "image": list(workload.images),
    }
    return {"rules": [_EXCLUSION_RULE], "match": match, "reason": "it is an agent of nodes"}


_EXCLUSION_RULE = "gpu-node-without-request"
_AGENT = "DaemonSet {workload.namespace}/{workload.name}: must it run on GPU nodes?"


def _combined(names: list[str]) -> list[Any]:
    """The profiles, or one that extends them all where they describe the same resources."""
    try:
        merged_profile(names or ["nvidia"])
    except ProfileError:
        return [{"name": _NAME, "extends": names, **{k: _union(names, k) for k in _REPLACED}}]
    return names or ["nvidia"]


def _union(names: Sequence[str], key: str) -> list[Any]:
    """The entries of all profiles; what they have in common by `extends` only if none has more."""
    own = [_inherited(name, key) for name in names]
    parents = [ancestors(name) for name in names]
    shared = {
        p for i, some in enumerate(parents) for p in some if p in set().union(*parents[i + 1 :])
    }
    common = [_inherited(name, key) for name in shared]
    special = [entries for entries in own if entries not in common]
    unique: list[Any] = []
    for entries in special or own:
        unique += [entry for entry in entries if entry not in unique]
    return unique


def _inherited(name: str, key: str) -> list[Any]:
    """Return the value of the built-in profile, or of the last that it extends."""
    raw = built_in_profiles()[name]
    if key in raw:
        return list(raw[key])
    found = (_inherited(parent, key) for parent in reversed(raw.get("extends", ())))
    return next(found, [])


def _known(names: Sequence[str], key: str) -> list[Entry]:
    return [Entry(value, "of the profiles above") for value in _union(names, key)]


def _list(key: str, entries: Sequence[Entry]) -> list[str]:
    lines = [(item(entry.value, entry.why, 6), entry.certain) for entry in entries]
    return section(key, [t for t, sure in lines if sure], [t for t, sure in lines if not sure], 4)


def _table(key: str, entries: Sequence[Entry]) -> list[str]:
    lines = [line(one_line_text(entry.value)[1:-1], entry.why, 6) for entry in entries]
    return section(key, [], lines, 4)


def _names(choice: Choice, indent: int) -> list[str]:
    certain = [item(name, why, indent) for name, why in choice.chosen.items()]
    return [*certain, *commented(_possible(choice, indent))]


def _possible(choice: Choice, indent: int) -> list[str]:
    lines = []
    for name, why in choice.possible.items():
        contained = [parent for parent in choice.chosen if parent in ancestors(name)]
        instead = f"instead of {', '.join(contained)}, perhaps: " if contained else "perhaps: "
        lines.append(item(name, instead + why, indent))
    return lines


def _nothing(choice: Choice) -> list[str]:
    return commented(
        [
            line("profiles:", "nothing was seen that is certain; without profiles: nvidia"),
            *_possible(choice, 2),
            *([] if choice.possible else [item("nvidia", "the default; nothing was seen", 2)]),
        ]
    )


def _remarks(facts: InitFacts, profile: Profile) -> list[str]:
    lines = []
    if unseen := differences.unseen_schedulers(facts, profile):
        lines += note(f"Not seen, though the profiles name it: the scheduler {', '.join(unseen)}.")
    if names := [*differences.unknown_resources(facts, profile)]:
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        listed = ", ".join(names[:_MAX_NAMED])
        lines += note(
            f"Nodes offer {listed}{more}, of which no profile knows. If one is a GPU, describe it "
            "under `resources` of a profile of your own."
        )
    return lines


# Keys that come from objects which the account may not list: they stay as the file has them.

_PLATFORM = frozenset(
    {NODES, DAEMON_SETS, DEPLOYMENTS, DEVICE_CLASSES, SLICES, PODS, RUNTIME_CLASSES}
)
# What the keys of both files are concluded from; those of the chart's values go by the profiles.
_SOURCES = {
    "profiles": _PLATFORM,
    "registration": _PLATFORM,
    "certificates": frozenset({MUTATING, VALIDATING}),
    "clusterInventory": _PLATFORM,
    "nodeGuard": _PLATFORM,
}
_CALLERS = "networkPolicy"  # the key that comes from a dry run
_KEY = re.compile(rf"^(?:# )?(mode|{'|'.join((*_SOURCES, _CALLERS))}):")


def unseen_keys(forbidden: frozenset[Resource], callers: Callers | NotTried) -> list[str]:
    """The keys that come from what could not be seen: `forbidden` resources, or no `callers`."""
    unseen = [key for key, sources in _SOURCES.items() if sources & forbidden]
    return [*unseen, *([_CALLERS] if isinstance(callers, NotTried) else [])]


def keep_unseen(new: str, old: str, unseen: Sequence[str]) -> tuple[str, list[str]]:
    """`new` with the keys `unseen` as they are in the file `old`; and those that differ.

    What cannot be seen is not absent: a key would go, or change, for lack of a right.
    """
    present, wanted = _by_key(old), _by_key(new)
    kept = [key for key in unseen if key in present]
    merged = wanted | {key: present[key] for key in kept}
    differing = [key for key in kept if wanted.get(key) != present[key]]
    return "".join(merged.values()), differing


def _by_key(text: str) -> dict[str, str]:
    """The lines of each key at the top, commented out or not; what is before them is under ""."""
    found: dict[str, str] = {"": ""}
    key = ""
    for text_line in text.splitlines(keepends=True):
        if match := _KEY.match(text_line):
            key = match[1]
        ending = "" if text_line.endswith("\n") else "\n"
        found[key] = found.get(key, "") + text_line + ending
    return found


# The chart's values.

# API servers never send pods in these: `registration.excludedNamespaces` in the chart's values.
_ALWAYS_EXCLUDED = {"kube-system", "kube-public", "kube-node-lease"}
_CERT_MANAGER = "webhook.cert-manager.io"  # cert-manager's charts name its webhook so
_MAX_LISTED = 5


def write_values(facts: InitFacts, profile: Profile, callers: Callers | NotTried) -> list[str]:
    """The lines of the values."""
    later = f"then deny, by {DOCS_URL}/install.md"
    lines = [line("mode: warn", f"nothing is refused or changed yet; {later}")]
    excluded = _excluded(facts, profile)
    certain = [item(entry.value, entry.why, 4) for entry in excluded if entry.certain]
    possible = [item(entry.value, entry.why, 4) for entry in excluded if not entry.certain]
    if excluded:
        head = "registration:"
        lines += [head] if certain else commented([head])
        lines += section("excludedNamespaces", certain, possible, 2)
    if _CERT_MANAGER in facts.webhooks:
        why = f"cert-manager is installed: the webhook {_CERT_MANAGER}"
        lines += ["certificates:", line("mode: certManager", why, 2)]
    lines += _inventory(facts, profile)
    if guarded := [node for node in facts.nodes if MODE_LABEL in node.labels]:
        why = f"label {MODE_LABEL} on {nodes_named(guarded)}: {DOCS_URL}/node-guard.md"
        lines += commented(["nodeGuard:", line("enabled: true", why, 2)])
    if others := sorted(name for name in facts.webhooks if not name.endswith(".gpuward.io")):
        more = f" and {len(others) - _MAX_LISTED} more" if len(others) > _MAX_LISTED else ""
        lines += note(
            f"Other webhooks: {', '.join(others[:_MAX_LISTED])}{more}. `gpuward doctor` says "
            "whether gpuward sees what they change."
        )
    return [*lines, *_webhook_from(callers)]


def _webhook_from(callers: Callers | NotTried) -> list[str]:
    """Return the lines on who may call the webhook.

    They are commented out unless all API servers are known to call so.
    """
    head = [f"{_CALLERS}:", "  webhookFrom:"]
    if isinstance(callers, NotTried):
        why = "if it is empty, any client may call the webhook; from where API servers call was "
        why += printable(f"not seen ({callers.why}): {callers.remedy}")
        return commented([head[0], line(f"{head[1]} []", why)])
    if callers.are_verified:
        why = "the webhook demands client certificates, and API servers show them"
        return commented([head[0], line(f"{head[1]} []", why)])
    seen = [(peer.selector, f"an API server has called from {peer}") for peer in callers.peers]
    if callers.are_all:
        return [*head, *(item(value, why, 4) for value, why in seen)]
    more = f"and others may call from elsewhere: are these all? {DOCS_URL}/install.md"
    return commented([*head, *(item(value, f"{why}, {more}", 4) for value, why in seen)])


def _excluded(facts: InitFacts, profile: Profile) -> list[Entry]:
    """The namespaces of the GPU platform's DaemonSets; certain if nothing else runs there."""
    homes: dict[str, list[str]] = {}
    for workload in facts.daemon_sets:
        home, account = workload.namespace, workload.service_account
        if home not in _ALWAYS_EXCLUDED and is_component(profile, home, account):
            homes.setdefault(home, []).append(workload.name)
    entries = []
    for home, names in sorted(homes.items()):
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        seen = f"DaemonSet {names[0]}{more} of the GPU platform"
        others = sorted(
            account
            for namespace, account in facts.accounts
            if namespace == home and not is_component(profile, home, account)
        )
        if PODS in facts.missing:
            entries.append(Entry(home, f"{seen}; which pods run there is not known", certain=False))
        elif others:
            accounts = ", ".join(others[:_MAX_LISTED])
            why = f"{seen}, and pods of other accounts, to which no rule would apply: {accounts}"
            entries.append(Entry(home, why, certain=False))
        else:
            entries.append(Entry(home, f"{seen}; no other pods"))
    return entries


def _inventory(facts: InitFacts, profile: Profile) -> list[str]:
    """Return the lines about the inventory, if a runtime class is not named as its handler."""
    if not (named := runtime_classes(facts, profile)):
        return []
    why = f"RuntimeClass {named[0].value} is not called as its handler is: "
    why += f"{DOCS_URL}/other-objects.md"
    return ["clusterInventory:", line("enabled: true", why, 2)]


# A quota that keeps users from the system's priority classes, without a webhook.

_QUOTA = """\
apiVersion: v1
kind: ResourceQuota
metadata:
  name: no-system-priority
spec:
  hard: {pods: "0"}
  scopeSelector:
    matchExpressions:
      - scopeName: PriorityClass
        operator: In
        values: [system-node-critical, system-cluster-critical]
"""


def write_priority_quota(file: str) -> list[str]:
    """The lines of a quota for the namespaces of users, which `file` is to have."""
    return [
        *note(
            "Written by `gpuward init`. Pods of these priority classes evict those of other users, "
            "and by default everybody may name the classes. This quota refuses them, and counts no "
            f"other pod: {DOCS_URL}/resilience.md. Create it in each namespace of users:"
        ),
        f"# kubectl apply -f {file} -n NAMESPACE",
        *_QUOTA.splitlines(),
    ]
