"""The panels about what runs: certificates, the policy and the pods."""

from __future__ import annotations

from tools.dashboard.panel import OURS, RATE, Panel

DAY = 86400

CERTIFICATES = [
    Panel(
        "Certificate expires in",
        "The certificate that pods serve, the oldest of them.",
        "s",
        {"": f"min(gpuward_certificate_not_after_timestamp_seconds{{{OURS}}}) - time()"},
        "stat",
        4,
        -14 * DAY,
    ),
    Panel(
        "Authority expires in",
        "The authority of gpuward's own certificate controller.",
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
            "authorities in caBundle": f"max(gpuward_certs_authorities{{{OURS}}})",
        },
    ),
    Panel(
        "Certificates: trouble",
        "An hour: readings of the certificate that failed, rounds of the controller that failed, "
        "and times that caBundle had to be written.",
        "short",
        {
            "refused": f"sum(increase(gpuward_certificate_reload_failures_total{{{OURS}}}[1h]))",
            "failed rounds": f"sum(increase(gpuward_certs_failed_rounds_total{{{OURS}}}[1h]))",
            "caBundle written": f"sum(increase(gpuward_certs_bundle_written_total{{{OURS}}}[1h]))",
        },
    ),
]
POLICY = [
    Panel(
        "Policy in force",
        "Pods by the SHA-256 of their policy file. Two lines for longer than a few minutes: some "
        "pods have not taken the newest policy.",
        "short",
        {"{{sha256}}": f"count by (sha256) (gpuward_policy_info{{{OURS}}})"},
        width=12,
    ),
    Panel(
        "Policies taken and refused",
        "An hour. What was refused stands in the log as `policy refused`, with the reason.",
        "short",
        {
            "taken": f"sum(increase(gpuward_policy_loads_total{{{OURS}}}[1h]))",
            "refused": f"sum(increase(gpuward_policy_refusals_total{{{OURS}}}[1h]))",
        },
    ),
    Panel(
        "Pods whose policy file cannot be used",
        "They go on with the policy that they had.",
        "short",
        {"": f"sum(1 - gpuward_policy_valid{{{OURS}}})"},
        "stat",
        4,
        1,
    ),
]
PODS = [
    Panel(
        "Pods that answer",
        "With a policy, and not on their way out.",
        "short",
        {
            "answering": f"sum(1 - gpuward_draining{{{OURS}}})",
            "draining": f"sum(gpuward_draining{{{OURS}}})",
        },
    ),
    Panel(
        "CPU",
        "Cores used, by pod. One pod uses one core at most: near 1 it is time for another pod.",
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
