"""Tests that no part of an object that is no pod, or of a device plugin, makes a rule fail.

Others write into such objects, too: device plugins into labels and annotations of nodes, and users
of managed clusters into webhook configurations.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.loading import load_policy
from rules.base.json_values import value_at
from rules.catalog.index import CATALOG
from rules.engine.fixing import check, fix
from rules.profile.context import Context
from tests.testkit.cases import TODAY, without_needs
from tests.testkit.workload_table import places

CONTEXT = Context(TODAY)
RULES = load_policy(
    "apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [ack-registered, amd]\nrules:\n"
    + "".join(f"  {rule.name}: {{fix: true}}\n" for rule in CATALOG),
    "policy",
).rule_set()

MODE = "ack.node.gpu.schedule"
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "gpu-1",
        "labels": {
            MODE: "core_mem",
            "ack.node.gpu.placement": "spread",
            "gpushare": "true",
            "nvidia.com/cuda.driver-version.full": "400.1",
            "topology.kubernetes.io/region": "eu-west-3",
            "aliyun.accelerator/nvidia_name": "Tesla-M60",
            "nvidia.com/mig.strategy": "mixd",
        },
        "annotations": {"hami.io/node-nvidia-register": '[{"id": "GPU-1", "health": true}]'},
    },
    "spec": {"providerID": "aws:///x/i-1", "taints": [{"key": "a", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {"aliyun.com/gpu-mem": "31", "aliyun.com/gpu-count": "2"},
        "capacity": {"aliyun.com/gpu-core.percentage": "100"},
        "nodeInfo": {
            "kubeletVersion": "v1.18.0",
            "containerRuntimeVersion": "docker://18.0.0",
            "osImage": "Debian 9",
        },
    },
}
NODE_POOL: dict[str, Any] = {
    "apiVersion": "ack.alibabacloud.crossplane.io/v1alpha1",
    "kind": "KubernetesNodePool",
    "metadata": {"name": "gpu"},
    "spec": {
        "forProvider": {
            "labels": [{"key": MODE, "value": "share"}, {"key": "cgpu", "value": "true"}],
            "cpuPolicy": "static",
            "kubeletConfiguration": [{"cpuManagerPolicy": "static"}],
        }
    },
}
KUBEADM: dict[str, Any] = {
    "apiVersion": "kubeadm.k8s.io/v1beta4",
    "kind": "JoinConfiguration",
    "nodeRegistration": {
        "kubeletExtraArgs": [
            {"name": "node-labels", "value": f"{MODE}=cGPU,{MODE}=share"},
            {"name": "cpu-manager-policy", "value": "static"},
        ]
    },
}
WEBHOOKS: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "hook"},
    "webhooks": [
        {
            "name": name,
            "sideEffects": "Some",
            "timeoutSeconds": 20,
            "clientConfig": {"service": {"name": "hook", "namespace": "hooks"}},
            "rules": [{"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods"]}],
            "namespaceSelector": {
                "matchLabels": {},
                "matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}],
            },
            "objectSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn"}]},
        }
        for name in ("vgpu.hami.io", "deny.gpuward.io")
    ],
}
PLUGIN: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "nvidia-device-plugin", "namespace": "kube-system"},
    "spec": {
        "template": {
            "spec": {
                "tolerations": [{"key": "a", "operator": "Exists"}],
                "containers": [
                    {
                        "name": "plugin",
                        "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
                        "volumeMounts": [{"name": "plugins", "mountPath": "/plugins"}],
                    }
                ],
                "volumes": [
                    {
                        "name": "plugins",
                        "hostPath": {"path": "/var/lib/kubelet/device-plugins"},
                    }
                ],
            }
        }
    },
}
QUEUE: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ClusterQueue",
    "metadata": {"name": "queue"},
    "spec": {
        "resourceGroups": [
            {
                "coveredResources": ["cpu", "amd.com/gpus"],
                "flavors": [
                    {"name": "a", "resources": [{"name": "amd.com/gpu", "nominalQuota": "1.5"}]},
                    {"name": "b", "resources": [{"name": "amd/gpu", "borrowingLimit": "0.5"}]},
                ],
            }
        ]
    },
}
FLAVOR: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ResourceFlavor",
    "metadata": {"name": "flavor"},
    "spec": {"nodeLabels": {MODE: "cGPU", "nvidia.com/mig.strategy": "mixd"}},
}
LIMITS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "limits", "namespace": "ml"},
    "spec": {
        "limits": [
            {"type": "Container", "default": {"amd.com/gpu": 1}, "max": {"amd.com/gpus": 2}},
            {"type": "Pod", "max": {"amd.com/gpu": "0.5"}, "maxLimitRequestRatio": {"cpu": 2}},
        ]
    },
}
CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "claim", "namespace": "ml"},
    "spec": {
        "devices": {
            "requests": [
                {"name": "a", "exactly": {"deviceClassName": "gpu.amd.com", "count": 99}},
                {"name": "b", "exactly": {"deviceClassName": "gpu.amd.com", "adminAccess": True}},
                {
                    "name": "c",
                    "firstAvailable": [
                        {"name": name, "deviceClassName": "gpu.amd.com", "allocationMode": "All"}
                        for name in ("d", "e")
                    ],
                },
            ],
            "config": [
                {
                    "requests": ["b"],
                    "opaque": {
                        "driver": "gpu.nvidia.com",
                        "parameters": {
                            "apiVersion": "resource.nvidia.com/v1beta1",
                            "kind": "GpuConfig",
                            "sharing": {
                                "strategy": "MPS",
                                "timeSlicingConfig": {"interval": "Longest"},
                                "mpsConfig": {"defaultActiveThreadPercentage": 200},
                            },
                        },
                    },
                }
            ],
        }
    },
}
OBJECTS = (NODE, NODE_POOL, KUBEADM, WEBHOOKS, PLUGIN, QUEUE, FLAVOR, LIMITS, CLAIM)
PLACES = [places(made) for made in OBJECTS]
ODD: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [
            *(None, True, 0, -1, 10**30, 1e308, "", "x", "\ud800", "²", "1" * 5000, "1e999999999"),
            *([], [None], [[]], [{}], ["x", 1, {}], {}, {"x": None}, {"": []}, {"a": {"b": []}}),
            *("static", "pods", "*", "In", "Fail", "cgpu", "v", "docker://", "docker://v"),
        ]
    ),
    st.text(max_size=10),
)


def evaluate_without_failure(manifest: Any) -> None:
    result = check(manifest, RULES, CONTEXT)
    assert not result.failures
    everything = check(manifest, without_needs(RULES), CONTEXT)
    found = [(f.identity, f.message) for f in result.findings]
    assert [(f.identity, f.message) for f in everything.findings] == found
    keys = [(f.stable_path, f.container_name, f.key) for f in result.findings]
    assert len({*keys}) == len(keys)
    assert not fix(manifest, RULES, CONTEXT).remaining.failures


@pytest.mark.parametrize("number", range(len(OBJECTS)))
def test_the_objects_have_findings(number: int) -> None:
    assert check(OBJECTS[number], RULES, CONTEXT).findings
    evaluate_without_failure(OBJECTS[number])


@pytest.mark.parametrize("names", [(None, 1), ("", ""), ("x", "x"), ("x" * 64, "x" * 63)])
def test_requests_whose_names_are_refused_have_findings_of_their_own(
    names: tuple[Any, Any],
) -> None:
    manifest = copy.deepcopy(CLAIM)
    listed = manifest["spec"]["devices"]["requests"]
    listed[1] = copy.deepcopy(listed[0])
    for request, alternative, name in zip(listed, listed[2]["firstAvailable"], names, strict=False):
        request["name"] = alternative["name"] = name
    evaluate_without_failure(manifest)


@settings(max_examples=250, deadline=None)
@given(st.data(), st.integers(0, len(OBJECTS) - 1))
def test_no_replaced_part_of_an_object_makes_a_rule_fail(data: st.DataObject, number: int) -> None:
    manifest = copy.deepcopy(OBJECTS[number])
    for path in data.draw(st.lists(st.sampled_from(PLACES[number]), min_size=1, max_size=3)):
        try:
            parent: Any = value_at(manifest, path[:-1])
            value_at(parent, path[-1:])
        except (LookupError, TypeError):
            continue  # an earlier change has removed it
        if isinstance(parent, str):
            continue  # or has put a text in its place
        parent[path[-1]] = data.draw(ODD)
    evaluate_without_failure(manifest)
