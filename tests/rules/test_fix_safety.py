"""Tests that no fix gives a pod a privilege that it did not have, whatever the policy."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.loading import load_policy
from rules.catalog.index import CATALOG
from rules.engine.fixing import fix
from rules.engine.rule_set import RuleSet
from rules.profile.context import Context
from tests.testkit.cases import TODAY, cases

ALL = [case for case in cases() if case.manifest.get("kind") == "Pod"]
LISTS = ("initContainers", "containers", "ephemeralContainers")

# The fields that fixes may change. Everything else must stay the same.
FIXABLE_POD_FIELDS = {"tolerations", "affinity", "nodeSelector", "schedulerName", "nodeName"}
FIXABLE_POD_FIELDS |= {"resourceClaims"}  # but not which claims they are
FIXABLE_CONTAINER_FIELDS = {"env", "resources", "volumeMounts"}
REDUCIBLE_FIELDS = {"hostPID", "hostIPC", "hostNetwork", "securityContext"}
# What a fix may write into a securityContext, beside less privileges.
STRICTEST = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "appArmorProfile": {"type": "RuntimeDefault"},
    "procMount": "Default",
}


def every_fix(profiles: str) -> RuleSet:
    rules = "".join(f"  {rule.name}: {{fix: true}}\n" for rule in CATALOG)
    head = f"apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [{profiles}]\n"
    return load_policy(f"{head}voidEveryContainer: true\nrules:\n{rules}", "p").rule_set()


def containers(pod: Any) -> list[tuple[str, Any]]:
    return [
        (f"{field}/{index}", container)
        for field in LISTS
        for index, container in enumerate(pod["spec"].get(field) or [])
    ]


def privileges(pod: Any) -> set[str]:
    """The settings of a pod that give it privileges."""
    spec = pod["spec"]
    found = {name for name in ("hostPID", "hostIPC", "hostNetwork") if spec.get(name)}
    found |= {f"hostPath {v['hostPath']}" for v in spec.get("volumes") or [] if v.get("hostPath")}
    for label, container in containers(pod):
        context = container.get("securityContext") or {}
        capabilities = context.get("capabilities") or {}
        found |= {f"{label} {key}" for key in ("privileged", "procMount") if context.get(key)}
        found |= {f"{label} +{name}" for name in capabilities.get("add") or []}
        if context.get("allowPrivilegeEscalation", True):
            found.add(f"{label} may escalate")
        found |= {f"{label} mounts {m}" for m in map(str, container.get("volumeMounts") or [])}
    return found


def dropped_capabilities(pod: Any) -> set[str]:
    """The capabilities that the containers drop."""
    return {
        f"{label} -{name}"
        for label, container in containers(pod)
        for name in ((container.get("securityContext") or {}).get("capabilities") or {}).get("drop")
        or []
    }


def without_fixable_fields(pod: Any) -> Any:
    """The pod without the fields that fixes may change."""
    rest = copy.deepcopy(pod)
    rest.get("metadata", {}).pop("annotations", None)
    rest.get("metadata", {}).pop("labels", None)
    for field in FIXABLE_POD_FIELDS | REDUCIBLE_FIELDS:
        rest["spec"].pop(field, None)
    for _, container in containers(rest):
        for field in FIXABLE_CONTAINER_FIELDS | REDUCIBLE_FIELDS:
            container.pop(field, None)
    return rest


def claims(pod: Any) -> list[tuple[Any, ...]]:
    """The name of each claim of a pod, and the claim or the template to which it refers."""
    fields = ("resourceClaimName", "resourceClaimTemplateName")
    entries = [{**(e.get("source") or {}), **e} for e in pod["spec"].get("resourceClaims") or []]
    return [(e.get("name"), *(e.get(field) for field in fields)) for e in entries]


def assert_no_new_privileges(pod: Any, rules: RuleSet) -> None:
    fixed = fix(pod, rules, Context(TODAY)).manifest
    assert privileges(fixed) <= privileges(pod)
    assert claims(fixed) == claims(pod)
    assert dropped_capabilities(fixed) >= dropped_capabilities(pod)
    assert without_fixable_fields(fixed) == without_fixable_fields(pod)
    for (label, after), (_, before) in zip(containers(fixed), containers(pod), strict=True):
        assert_only_hardened(after.get("securityContext"), before.get("securityContext"), label)


def assert_only_hardened(after: Any, before: Any, label: str) -> None:
    """Each field of the securityContext is as before, or has its strictest value."""
    new, old = dict(after or {}), dict(before or {})
    for name in ("privileged", "capabilities"):  # which `privileges` compares
        new.pop(name, None)
        old.pop(name, None)
    changed = {name: new.get(name) for name in {*new, *old} if new.get(name) != old.get(name)}
    weaker = {name: value for name, value in changed.items() if value != STRICTEST.get(name)}
    assert weaker == {}, f"{label}: a fix may set these fields of securityContext to {STRICTEST}"


@pytest.mark.parametrize("profile", ["nvidia", "hami", "volcano", "kai", "ack", "amd", "gke"])
def test_no_fix_of_any_case_adds_a_privilege(profile: str) -> None:
    rules = every_fix(profile)
    for case in ALL:
        assert_no_new_privileges(case.manifest, rules)


NAMES = st.sampled_from(["NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD", "CUDA_VERSION", "PATH"])
CONTAINERS = st.fixed_dictionaries(
    {"name": st.sampled_from("ab"), "image": st.sampled_from(["app", "nvidia/cuda:12"])},
    optional={
        "command": st.just(["sh"]),
        "env": st.lists(
            st.fixed_dictionaries({"name": NAMES, "value": st.sampled_from(["all", "void", "0"])})
        ),
        "resources": st.dictionaries(
            st.sampled_from(["limits", "requests"]),
            st.dictionaries(
                st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpumem", "cpu"]),
                st.sampled_from(["0", "1", "0.5", 2]),
            ),
        ),
        "securityContext": st.fixed_dictionaries(
            {},
            optional={
                "privileged": st.booleans(),
                "runAsUser": st.just(0),
                "capabilities": st.dictionaries(
                    st.sampled_from(["add", "drop"]),
                    st.lists(st.sampled_from(["SYS_ADMIN", "ALL", "IPC_LOCK"])),
                ),
            },
        ),
        "volumeMounts": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.just("v"),
                    "mountPath": st.sampled_from(
                        ["/data", "/var/run/nvidia-container-devices/all"]
                    ),
                }
            )
        ),
    },
)
PODS = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINERS, min_size=1, max_size=3)},
    optional={
        "hostPID": st.booleans(),
        "hostNetwork": st.booleans(),
        "volumes": st.just([{"name": "v", "hostPath": {"path": "/dev/null"}}]),
        "tolerations": st.just([{"key": "nvidia/gpu", "operator": "Exists"}]),
    },
).map(lambda spec: {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
EVERY_FIX = every_fix("nvidia")


@given(PODS)
def test_no_fix_of_any_pod_adds_a_privilege(pod: Any) -> None:
    assert_no_new_privileges(pod, EVERY_FIX)


@pytest.mark.parametrize(
    ("before", "after", "is_allowed"),
    [
        ({}, {"allowPrivilegeEscalation": False}, True),
        (None, {"seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": True}, True),
        ({"runAsUser": 0}, {"runAsUser": 0, "readOnlyRootFilesystem": True}, True),
        ({"runAsNonRoot": True}, {}, False),
        ({"seccompProfile": {"type": "RuntimeDefault"}}, {}, False),
        ({}, {"runAsUser": 0}, False),
        ({}, {"allowPrivilegeEscalation": True}, False),
    ],
)
def test_a_fix_may_harden_a_security_context(before: Any, after: Any, is_allowed: bool) -> None:  # noqa: FBT001
    if is_allowed:
        assert_only_hardened(after, before, "main")
    else:
        with pytest.raises(AssertionError):
            assert_only_hardened(after, before, "main")
