"""Panels about what the audit finds in the cluster."""

from __future__ import annotations

from tools.dashboard.panel import OURS, Panel

AUDIT = [
    Panel(
        "Pods with GPUs that nobody requested",
        "Running pods that can use GPUs of their nodes without a request.",
        "short",
        {"": f"max(gpuward_audit_unrequested_gpu_pods{{{OURS}}})"},
        "stat",
        4,
        1,
    ),
    Panel(
        "Pods that would be refused now",
        "Pods that the modes of their namespaces would refuse if they were created again.",
        "short",
        {"": f"max(gpuward_audit_refused_pods{{{OURS}}})"},
        "stat",
        4,
        1,
    ),
    Panel(
        "Findings, by rule",
        "What the last audit found, by rule and level.",
        "short",
        {"{{rule}} ({{level}})": f"max by (rule, level) (gpuward_audit_findings{{{OURS}}})"},
        width=16,
    ),
    Panel(
        "Findings, by namespace",
        "The same for each namespace in monitoring.countedNamespaces, by level.",
        "short",
        {
            "{{object_namespace}} ({{level}})": "sum by (object_namespace, level) "
            f"(gpuward_audit_namespace_findings{{{OURS}}})"
        },
    ),
    Panel(
        "Since the last complete audit",
        "The time since an audit has seen all there is, and kept what it found.",
        "s",
        {"": f"time() - max(gpuward_audit_success_timestamp_seconds{{{OURS}}})"},
        "stat",
        4,
    ),
    Panel(
        "Audit: time and failures",
        "How long the last audit took, how many failed or were incomplete, per hour, and the "
        "resources that could not be listed.",
        "short",
        {
            "seconds": f"max(gpuward_audit_duration_seconds{{{OURS}}})",
            "failed": f"sum(increase(gpuward_audit_failures_total{{{OURS}}}[1h]))",
            "not listed: {{resource}}": f"max by (resource) (gpuward_audit_unlisted{{{OURS}}})",
        },
        width=12,
    ),
]
