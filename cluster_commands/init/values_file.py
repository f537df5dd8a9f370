"""The text of the chart's values for a cluster."""

from __future__ import annotations

from cluster.init.choice import nodes_named
from cluster.init.differences import Entry, is_component, runtime_classes
from cluster.init.survey import Survey
from cluster_commands.init.lines import commented, item, line, note, section
from cluster_commands.source.resources import PODS
from rules.placement.ack_nodes import MODE
from rules.profile.profile import Profile

# API servers never send pods in these: `registration.excludedNamespaces` in the chart's values.
_ALWAYS_EXCLUDED = {"kube-system", "kube-public", "kube-node-lease"}
_CERT_MANAGER = "webhook.cert-manager.io"  # cert-manager's charts name its webhook so
_MAX_NAMED = 5


def write_values(survey: Survey, profile: Profile) -> list[str]:
    """The lines of the values."""
    lines = [line("mode: warn", "nothing is refused or changed yet; then deny, by docs/install.md")]
    excluded = _excluded(survey, profile)
    certain = [item(entry.value, entry.why, 4) for entry in excluded if entry.certain]
    possible = [item(entry.value, entry.why, 4) for entry in excluded if not entry.certain]
    if excluded:
        head = "registration:"
        lines += [head] if certain else commented([head])
        lines += section("excludedNamespaces", certain, possible, 2)
    if _CERT_MANAGER in survey.webhooks:
        why = f"cert-manager is installed: the webhook {_CERT_MANAGER}"
        lines += ["certificates:", line("mode: certManager", why, 2)]
    lines += _inventory(survey, profile)
    if guarded := [node for node in survey.nodes if MODE in node.labels]:
        why = f"label {MODE} on {nodes_named(guarded)}: docs/node-guard.md"
        lines += commented(["nodeGuard:", line("enabled: true", why, 2)])
    if others := sorted(name for name in survey.webhooks if not name.endswith(".gpuward.io")):
        more = f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else ""
        lines += note(
            f"Other webhooks: {', '.join(others[:_MAX_NAMED])}{more}. `gpuward doctor` says "
            "whether gpuward sees what they change."
        )
    return lines


def _excluded(survey: Survey, profile: Profile) -> list[Entry]:
    """The namespaces of the GPU platform's DaemonSets; certain if nothing else runs there."""
    homes: dict[str, list[str]] = {}
    for workload in survey.daemon_sets:
        home, account = workload.namespace, workload.service_account
        if home not in _ALWAYS_EXCLUDED and is_component(profile, home, account):
            homes.setdefault(home, []).append(workload.name)
    entries = []
    for home, names in sorted(homes.items()):
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        seen = f"DaemonSet {names[0]}{more} of the GPU platform"
        others = sorted(
            account
            for namespace, account in survey.accounts
            if namespace == home and not is_component(profile, home, account)
        )
        if PODS in survey.missing:
            entries.append(Entry(home, f"{seen}; which pods run there is not known", certain=False))
        elif others:
            accounts = ", ".join(others[:_MAX_NAMED])
            why = f"{seen}, and pods of other accounts, to which no rule would apply: {accounts}"
            entries.append(Entry(home, why, certain=False))
        else:
            entries.append(Entry(home, f"{seen}; no other pods"))
    return entries


def _inventory(survey: Survey, profile: Profile) -> list[str]:
    """Whether the webhook must know runtime classes, as where a name does not say the handler."""
    if not (named := runtime_classes(survey, profile)):
        return []
    why = f"RuntimeClass {named[0].value} is not called as its handler is: docs/other-objects.md"
    return ["clusterInventory:", line("enabled: true", why, 2)]
