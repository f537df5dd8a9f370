"""The built-in resources that commands list."""

from __future__ import annotations

from cluster.source.objects import Resource

_REGISTRATION = "admissionregistration.k8s.io"
_ALLOCATION = "resource.k8s.io"
# Kubernetes 1.34 has v1; releases before it have the others, if they were switched on.
_ALLOCATION_VERSIONS = ("v1", "v1beta2", "v1beta1")

NODES = Resource("nodes", "Node", is_namespaced=False)
PODS = Resource("pods", "Pod")
NAMESPACES = Resource("namespaces", "Namespace", is_namespaced=False)
DAEMON_SETS = Resource("daemonsets", "DaemonSet", "apps")
DEPLOYMENTS = Resource("deployments", "Deployment", "apps")
ENDPOINTS = Resource("endpointslices", "EndpointSlice", "discovery.k8s.io")
SLICES = Resource(
    "resourceslices", "ResourceSlice", _ALLOCATION, _ALLOCATION_VERSIONS, is_namespaced=False
)
DEVICE_CLASSES = Resource(
    "deviceclasses", "DeviceClass", _ALLOCATION, _ALLOCATION_VERSIONS, is_namespaced=False
)
CLAIMS = Resource("resourceclaims", "ResourceClaim", _ALLOCATION, _ALLOCATION_VERSIONS)
CLAIM_TEMPLATES = Resource(
    "resourceclaimtemplates", "ResourceClaimTemplate", _ALLOCATION, _ALLOCATION_VERSIONS
)
RUNTIME_CLASSES = Resource("runtimeclasses", "RuntimeClass", "node.k8s.io", is_namespaced=False)
CONFIG_MAPS = Resource("configmaps", "ConfigMap")
GPU_EXCEPTIONS = Resource("gpuexceptions", "GpuException", "gpuward.io", ("v1alpha1",))
MUTATING = Resource(
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    _REGISTRATION,
    is_namespaced=False,
)
VALIDATING = Resource(
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    _REGISTRATION,
    is_namespaced=False,
)
