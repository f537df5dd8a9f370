"""The permissions of the chart's accounts: exactly those that their programs are tested with."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.audit.facts import CLUSTER_SCOPED, EVALUATED, REFERRED
from cluster.audit.policy_reports import KINDS
from cluster.controllers.inventory import ALWAYS
from cluster.doctor.facts import LISTED
from cluster.source.objects import PODS
from console.state import FOLLOWED
from tests.testkit.chart.permissions import (
    CONTROLLER_VERBS,
    EVENT_RULE,
    NAMESPACED_RULES,
    READING_VERBS,
    REPAIR_BINDING,
    REPAIR_VERBS,
    SERVICE_RULE,
    WATCH_VERBS,
    configuration_rule,
)
from tests.testkit.chart.rendering import (
    CI_VALUES,
    Manifest,
    find_one,
    of_kind,
    pod_specs,
    render,
    render_error,
)

every_values = pytest.mark.parametrize("name", CI_VALUES)
COMPONENT = "app.kubernetes.io/component"
EXCEPTIONS_GROUP = "gpuward.io"
ROLES = ("Role", "ClusterRole")
LOG_RULE = {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
WITH_TOKEN = {
    *("audit", "certs", "console", "doctor", "exceptions", "inventory", "test", "watch"),
}


def as_sets(rules: list[dict[str, list[str]]]) -> list[dict[str, set[str]]]:
    """The RBAC rules with sets instead of lists, in a fixed order."""
    found = [{key: set(words) for key, words in rule.items()} for rule in rules]
    return sorted(found, key=lambda rule: sorted(rule["resources"]))


def rules(objects: list[Manifest], kind: str, name: str) -> list[dict[str, set[str]]]:
    return as_sets(find_one(objects, kind, name)["rules"])


def test_the_certificate_controller_has_the_permissions_it_is_tested_with() -> None:
    objects = render()
    assert rules(objects, "Role", "gpuward-certs") == as_sets([*NAMESPACED_RULES, EVENT_RULE])
    unwatched = render("registration: {watch: {enabled: false}}")
    assert rules(unwatched, "Role", "gpuward-certs") == as_sets(NAMESPACED_RULES)
    cluster_rule = configuration_rule("gpuward", CONTROLLER_VERBS)
    assert rules(objects, "ClusterRole", "gpuward-certs") == as_sets([cluster_rule])


def test_the_test_hook_may_only_read_the_configurations() -> None:
    cluster_rule = configuration_rule("gpuward", READING_VERBS)
    assert rules(render(), "ClusterRole", "gpuward-test") == as_sets([cluster_rule])


@pytest.mark.parametrize("name", ["cert-manager", "existing-secret"])
def test_without_the_controller_a_watch_has_the_permissions_it_is_tested_with(name: str) -> None:
    objects = render(CI_VALUES[name])
    assert rules(objects, "Role", "gpuward-watch") == as_sets([EVENT_RULE])
    cluster_rule = configuration_rule("gpuward", WATCH_VERBS)
    assert rules(objects, "ClusterRole", "gpuward-watch") == as_sets([cluster_rule])
    assert not of_kind(objects, "ClusterRole", "gpuward-certs")


@pytest.mark.parametrize(
    ("mode", "component"), [("self", "certs"), ("certManager", "watch")], ids=["self", "other"]
)
def test_only_with_repair_may_the_watching_pod_create_the_configurations(
    mode: str, component: str
) -> None:
    assert not of_kind(render(f"certificates: {{mode: {mode}}}"), "ClusterRole", REPAIR_BINDING)
    objects = render(f"certificates: {{mode: {mode}}}\nregistration: {{repair: true}}")
    cluster_rule = configuration_rule("gpuward", REPAIR_VERBS)
    assert rules(objects, "ClusterRole", REPAIR_BINDING) == as_sets([cluster_rule])
    (subject,) = find_one(objects, "ClusterRoleBinding", REPAIR_BINDING)["subjects"]
    assert subject["name"] == f"gpuward-{component}"
    assert rules(objects, "Role", REPAIR_BINDING) == as_sets([SERVICE_RULE])
    (subject,) = find_one(objects, "RoleBinding", REPAIR_BINDING)["subjects"]
    assert subject["name"] == f"gpuward-{component}"


def test_repair_needs_the_watch() -> None:
    options = ("--set=registration.repair=true", "--set=registration.watch.enabled=false")
    assert "registration.repair needs registration.watch.enabled" in render_error(options=options)


def test_the_controller_for_gpu_exceptions_has_the_permissions_it_is_tested_with() -> None:
    """tests/chart/test_lifecycle_exceptions.py asks an API server about each of them."""
    objects = render("gpuExceptions: {enabled: true}")
    config_map = {"apiGroups": [""], "resources": ["configmaps"]}
    config_map |= {"resourceNames": ["gpuward-exceptions"], "verbs": ["get", "update"]}
    assert rules(objects, "Role", "gpuward-exceptions") == as_sets([config_map])
    group = {"apiGroups": [EXCEPTIONS_GROUP]}
    own = [
        {**group, "resources": ["gpuexceptions"], "verbs": ["list"]},
        {**group, "resources": ["gpuexceptions/status"], "verbs": ["patch"]},
    ]
    assert rules(objects, "ClusterRole", "gpuward-exceptions") == as_sets(own)


def test_the_controller_for_the_inventory_has_the_permissions_it_is_tested_with() -> None:
    """tests/chart/test_lifecycle_inventory.py asks an API server about each of them."""
    objects = render("clusterInventory: {enabled: true}")
    config_maps = {"apiGroups": [""], "resources": ["configmaps"]}
    names = ["gpuward-inventory-0", "gpuward-inventory-1"]
    own = {**config_maps, "resourceNames": names, "verbs": ["get", "update"]}
    assert rules(objects, "Role", "gpuward-inventory") == as_sets([own])
    listed: dict[str, set[str]] = {}
    for resource in ALWAYS:
        listed.setdefault(resource.group, set()).add(resource.name)
    always = [
        {"apiGroups": [group], "resources": [*names], "verbs": ["list"]}
        for group, names in listed.items()
    ]
    assert rules(objects, "ClusterRole", "gpuward-inventory") == as_sets(always)
    for value, name in (("configMaps", "configmaps"), ("nodes", "nodes")):
        objects = render(f"clusterInventory: {{enabled: true, {value}: true}}")
        more = {"apiGroups": [""], "resources": [name], "verbs": ["list"]}
        assert rules(objects, "ClusterRole", "gpuward-inventory") == as_sets([*always, more])


def test_nobody_gets_the_right_to_approve() -> None:
    objects = render("gpuExceptions: {enabled: true}")
    users = {
        name: find_one(objects, "ClusterRole", f"gpuward-exceptions-{name}")
        for name in ("edit", "view")
    }
    for role in users.values():
        (rule,) = role["rules"]
        assert (rule["apiGroups"], rule["resources"]) == ([EXCEPTIONS_GROUP], ["gpuexceptions"])
        assert not {"approve", "*"} & {*rule["verbs"]}
    label = "rbac.authorization.k8s.io/aggregate-to-"
    granted = {
        name: {key.removeprefix(label) for key in role["metadata"]["labels"] if label in key}
        for name, role in users.items()
    }
    assert granted == {"edit": {"admin", "edit"}, "view": {"admin", "edit", "view"}}
    without = render("gpuExceptions: {enabled: true, aggregateRoles: false}")
    assert not of_kind(without, "ClusterRole", "gpuward-exceptions-edit")


def test_the_audit_may_list_what_it_evaluates_and_write_its_reports() -> None:
    """tests/cluster_commands/test_audit_on_cluster.py runs the audit with the role."""
    expected = {(resource.group, resource.name) for resource in REFERRED}
    for table in (EVALUATED, CLUSTER_SCOPED):
        expected |= {(group, name) for group, names in table.items() for name in names}
    listed = granted(render("audit: {enabled: true}"), "gpuward-audit")
    assert listed == {(group, name, "list") for group, name in expected}
    excepted = granted(
        render("{audit: {enabled: true}, gpuExceptions: {enabled: true}}"), "gpuward-audit"
    )
    assert excepted == {*listed, (EXCEPTIONS_GROUP, "gpuexceptions", "list")}
    eventful = granted(render("audit: {enabled: true, events: true}"), "gpuward-audit")
    events = {("events.k8s.io", "events", verb) for verb in ("create", "get", "patch")}
    assert eventful == listed | events
    verbs = ("list", "create", "patch", "delete")
    for kind, resources in KINDS.items():
        objects = render(f"audit: {{enabled: true, publish: {kind}}}")
        written = {(made.group, made.name, verb) for made in resources for verb in verbs}
        assert granted(objects, "gpuward-audit") == listed | written
    assert "audit" not in pod_specs(render())


def test_the_doctor_may_list_what_it_looks_at_and_read_what_api_servers_count() -> None:
    """tests/chart/test_lifecycle_inventory.py runs it with the role."""
    objects = render("doctor: {enabled: true}")
    *listed, of_certs, counted = find_one(objects, "ClusterRole", "gpuward-doctor")["rules"]
    assert of_certs["resources"] == ["clusterroles", "clusterrolebindings"]
    assert (of_certs["resourceNames"], of_certs["verbs"]) == (["gpuward-certs"], ["get"])
    found = {
        (group, name, *rule["verbs"])
        for rule in listed
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    assert found == {(r.group, r.name, "list") for r in (*LISTED, PODS)}
    assert counted == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    assert "doctor" not in pod_specs(render())
    for rule in find_one(objects, "Role", "gpuward-doctor")["rules"]:
        assert rule["verbs"] == ["get"]
        assert rule["resourceNames"]
        assert rule["resources"] != ["secrets"]


def test_the_console_may_read_what_it_shows_and_create_nothing_but_reviews() -> None:
    """tests/console/test_access.py and tests/chart/test_lifecycle_console.py run it with them."""
    rights = granted(render("console: {enabled: true}"), "gpuward-console")
    audited = {(group, name) for group, names in EVALUATED.items() for name in names}
    assert {(group, name, "get") for group, name in audited} <= rights
    assert granted(render("audit: {enabled: true}"), "gpuward-audit") <= rights
    followed = {(r.group, r.name, verb) for r in FOLLOWED for verb in ("list", "watch")}
    assert followed <= rights
    assert {right[2] for right in rights} == {"get", "list", "watch", "create"}
    assert {right for right in rights if right[2] == "create"} == {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }
    assert not {name for _, name, _ in rights} & {"secrets", "configmaps", "pods/log"}
    (logs,) = rules(render("console: {enabled: true}"), "Role", "gpuward-console")
    assert [logs] == as_sets([LOG_RULE])
    assert "console" not in pod_specs(render())


def granted(objects: list[Manifest], name: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in find_one(objects, "ClusterRole", name)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_by_default_there_is_nothing_about_gpu_exceptions() -> None:
    assert "exceptions" not in pod_specs(render())
    assert not of_kind(render(), "CustomResourceDefinition")
    assert not [a for a in pod_specs(render())["webhook"]["containers"][0]["args"] if "gpu-ex" in a]


def test_the_watch_can_be_disabled_with_all_its_permissions() -> None:
    values = "certificates: {mode: certManager}\nregistration: {watch: {enabled: false}}"
    assert not [made for made in render(values) if made["metadata"]["name"] == "gpuward-watch"]
    (container,) = pod_specs(render("registration: {watch: {enabled: false}}"))["certs"][
        "containers"
    ]
    assert not [each for each in container["args"] if "expected" in each]


@every_values
def test_every_permission_is_limited_to_named_objects_and_few_verbs(name: str) -> None:
    objects = render(CI_VALUES[name])
    roles = [role for kind in ROLES for role in of_kind(objects, kind)]
    # The audit, the console and the doctor read all objects: tests above name each.
    reading = {"gpuward-audit", "gpuward-console", "gpuward-doctor"}
    limited = [role for role in roles if role["metadata"]["name"] not in reading]
    for rule in (rule for role in limited for rule in role["rules"]):
        if rule in (EVENT_RULE, LOG_RULE) or rule["apiGroups"] == [EXCEPTIONS_GROUP]:
            continue  # objects of any name
        assert set(rule) == {"apiGroups", "resources", "resourceNames", "verbs"}
        assert rule["resourceNames"]
        assert not any("*" in words for words in rule.values())
        assert {*rule["verbs"]} <= {"get", "watch", "create", "update", "patch", "delete"}


@every_values
def test_tokens_are_mounted_only_where_they_are_needed(name: str) -> None:
    objects = render(CI_VALUES[name])
    assert not any(a["automountServiceAccountToken"] for a in of_kind(objects, "ServiceAccount"))
    for component, spec in pod_specs(objects).items():
        assert spec["automountServiceAccountToken"] == (component in WITH_TOKEN), component


@every_values
def test_every_pod_has_its_own_account_and_the_webhooks_account_has_no_permissions(
    name: str,
) -> None:
    objects = render(CI_VALUES[name])
    accounts = [account["metadata"]["name"] for account in of_kind(objects, "ServiceAccount")]
    used = {component: spec["serviceAccountName"] for component, spec in pod_specs(objects).items()}
    assert sorted(used.values()) == sorted(accounts)
    bound = {
        subject["name"]
        for kind in ROLES
        for binding in of_kind(objects, f"{kind}Binding")
        for subject in binding["subjects"]
    }
    assert bound == {used[component] for component in used if component in WITH_TOKEN}


@every_values
def test_bindings_connect_an_account_to_a_role_of_the_release(name: str) -> None:
    objects = render(CI_VALUES[name])
    for kind in ROLES:
        for binding in of_kind(objects, f"{kind}Binding"):
            reference = binding["roleRef"]
            role = find_one(objects, reference["kind"], reference["name"])
            (subject,) = binding["subjects"]
            account = find_one(objects, "ServiceAccount", subject["name"])
            assert subject["namespace"] == account["metadata"]["namespace"]
            assert hook_settings(binding) == hook_settings(role) == hook_settings(account)


def hook_objects(objects: list[Manifest], component: str) -> list[Manifest]:
    """The objects of one of the chart's hooks."""
    own = [m for m in objects if m["metadata"]["labels"][COMPONENT] == component]
    return [made for made in own if hook_settings(made)[0]]


def hook_settings(made: Manifest) -> tuple[Any, ...]:
    """The hook, its weight and its delete policy, from the annotations."""
    annotations = made["metadata"].get("annotations", {})
    return tuple(annotations.get(f"helm.sh/hook{end}") for end in ("", "-weight", "-delete-policy"))


@pytest.mark.parametrize("name", ["test", "doctor"])
def test_the_permissions_of_a_hook_are_created_before_it_and_deleted_with_it(name: str) -> None:
    objects = render("doctor: {enabled: true}")
    (work,) = (m for m in hook_objects(objects, name) if m["kind"] in {"Job", "Pod"})
    assert hook_settings(work)[0] == "test"
    others = [made for made in hook_objects(objects, name) if made is not work]
    found = {made["kind"] for made in others}
    of_release = {"Role", "RoleBinding"} if name == "doctor" else set()
    assert found == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"} | of_release
    for made in others:
        assert int(hook_settings(made)[1]) < int(hook_settings(work)[1])
        assert set(hook_settings(made)[2].split(",")) == {"before-hook-creation", "hook-succeeded"}
