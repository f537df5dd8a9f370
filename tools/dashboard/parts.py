"""Panels about certificates, the policy and the pods."""

from __future__ import annotations

from tools.dashboard.panel import OURS, RATE, Panel

DAY = 86400


def _per_hour(counter: str) -> str:
    return f"sum(increase({counter}{{{OURS}}}[1h]))"


CERTIFICATES = [
    Panel(
        "Certificate expires in",
        "The time until the first certificate that a pod serves expires.",
        "s",
        {"": f"min(gpuward_certificate_not_after_timestamp_seconds{{{OURS}}}) - time()"},
        "stat",
        4,
        -14 * DAY,
    ),
    Panel(
        "CA expires in",
        "The time until the CA of gpuward's own certificate controller expires.",
        "s",
        {"": f"max(gpuward_certs_authority_expiry_seconds{{{OURS}}})"},
        "stat",
        4,
        -14 * DAY,
    ),
    Panel(
        "Pods with the newest certificate",
        "Pods that the certificate controller sees, and those that serve the newest certificate.",
        "short",
        {
            "pods": f"max(gpuward_certs_replicas{{{OURS}}})",
            "with the newest": f"max(gpuward_certs_replicas_current{{{OURS}}})",
            "CAs in caBundle": f"max(gpuward_certs_authorities{{{OURS}}})",
        },
    ),
    Panel(
        "Certificates: failures and writes",
        "Per hour: failed attempts to load the certificate, failed reconciliations of the "
        "controller, and times that the controller wrote caBundle.",
        "short",
        {
            "failed loads": _per_hour("gpuward_certificate_reload_failures_total"),
            "failed reconciliations": _per_hour("gpuward_certs_reconciliation_failures_total"),
            "caBundle written": _per_hour("gpuward_certs_ca_bundle_writes_total"),
        },
    ),
    Panel(
        "Changed webhook configurations",
        "Webhook configurations that are not what this release should have. No data means that "
        "nobody compares them.",
        "short",
        {"": f"sum(1 - gpuward_registration_as_expected{{{OURS}}})"},
        "stat",
        4,
        1,
    ),
]
POLICY = [
    Panel(
        "Active policy",
        "Pods by the SHA-256 of their policy file. Two lines for more than a few minutes mean that "
        "some pods have not loaded the newest policy.",
        "short",
        {"{{sha256}}": f"count by (sha256) (gpuward_policy_info{{{OURS}}})"},
        width=12,
    ),
    Panel(
        "Policies loaded and refused",
        "Per hour. The log has a line `policy refused` with the reason for each refused policy.",
        "short",
        {
            "loaded": _per_hour("gpuward_policy_loads_total"),
            "refused": _per_hour("gpuward_policy_reload_failures_total"),
        },
    ),
    Panel(
        "Pods whose policy file cannot be used",
        "These pods continue with their previous policy.",
        "short",
        {"": f"sum(1 - gpuward_policy_valid{{{OURS}}})"},
        "stat",
        4,
        1,
    ),
    Panel(
        "Time left of exceptions",
        "The exceptions of the policy that have an end. Below zero, they no longer apply.",
        "s",
        {
            "{{exception}}: {{rules}} ({{namespaces}})": "min by (exception, rules, namespaces) "
            f"(gpuward_exception_expiry_seconds{{{OURS}}})"
        },
    ),
]
PODS = [
    Panel(
        "Pods that answer",
        "Pods that have loaded a policy and are not draining.",
        "short",
        {
            "answering": f"sum(1 - gpuward_draining{{{OURS}}})",
            "draining": f"sum(gpuward_draining{{{OURS}}})",
        },
    ),
    Panel(
        "CPU",
        "Cores used, by pod. A pod uses at most one core: near 1, add a pod.",
        "short",
        {"{{instance}}": f"rate(process_cpu_seconds_total{{{OURS}}}[{RATE}])"},
    ),
    Panel(
        "Memory",
        "Resident memory, by pod.",
        "bytes",
        {"{{instance}}": f"process_resident_memory_bytes{{{OURS}}}"},
    ),
]
