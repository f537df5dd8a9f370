"""Series that make alerts about certificates fire, and series that do not."""

from __future__ import annotations

from tests.testkit.chart.alert_examples import LONG, NS, POD, POD_LABELS, Example, ready_pod_series

CERTS = f'{NS}, pod="gpuward-certs-0", job="gpuward-certs", instance="10.0.0.2:8081"'
EXPIRY = f"gpuward_certs_certificate_expiry_seconds{{{CERTS}}}"
DAY = 86400

CERTIFICATE_EXAMPLES: dict[str, list[Example]] = {
    "GpuwardCertificateExpiresSoon": [
        Example(
            ready_pod_series(f"{13 * DAY + 1800}{LONG}"),
            ready_pod_series(f"{14 * DAY + 3600}{LONG}"),
            template_values={"$value | humanizeDuration": "13d 0h 0m 0s"},
        )
    ],
    "GpuwardCertificateRefused": [
        Example(
            {f"gpuward_certificate_reload_failures_total{{{POD}}}": "0+30x60"},
            {f"gpuward_certificate_reload_failures_total{{{POD}}}": f"0x19 0+30x2 90{LONG}"},
            POD_LABELS,
            {"$labels.pod": "gpuward-0"},
        )
    ],
    "GpuwardCertificateNotRenewed": [
        Example(
            {EXPIRY: f"{19 * DAY}{LONG}"},
            # The renewal itself is due when 30 days are left.
            {EXPIRY: f"{29 * DAY}{LONG}"},
            template_values={"$value | humanizeDuration": "19d 0h 0m 0s"},
            after="120m",
        )
    ],
    "GpuwardAuthorityNotRenewed": [
        Example(
            {f"gpuward_certs_authority_expiry_seconds{{{CERTS}}}": f"{80 * DAY}{LONG}"},
            {f"gpuward_certs_authority_expiry_seconds{{{CERTS}}}": f"{121 * DAY}{LONG}"},
            template_values={"$value | humanizeDuration": "80d 0h 0m 0s"},
            after="120m",
        )
    ],
    "GpuwardCertificateControllerDown": [
        Example({}, {f"gpuward_certs_leader{{{CERTS}}}": f"1x15 0x5 1{LONG}"}),
        Example(
            {f"gpuward_certs_leader{{{CERTS}}}": f"0{LONG}"},
            {f"gpuward_certs_leader{{{CERTS}}}": f"1{LONG}"},
        ),
    ],
    "GpuwardCertificateReconciliationFails": [
        Example(
            {
                f"gpuward_certs_reconciliations_total{{{CERTS}}}": "0+2x120",
                f"gpuward_certs_reconciliation_failures_total{{{CERTS}}}": "0+2x120",
            },
            {
                f"gpuward_certs_reconciliations_total{{{CERTS}}}": "0+2x120",
                f"gpuward_certs_reconciliation_failures_total{{{CERTS}}}": f"0x20 8{LONG}",
            },
            after="60m",
        )
    ],
    "GpuwardBundleRewritten": [
        Example(
            {f"gpuward_certs_ca_bundle_writes_total{{{CERTS}}}": "0+0.5x120"},
            # A first installation, or a rotation.
            {f"gpuward_certs_ca_bundle_writes_total{{{CERTS}}}": f"0x20 2x10 4{LONG}"},
            template_values={"$value | humanize": "30"},
            after="60m",
        )
    ],
}
