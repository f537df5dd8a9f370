"""Series that make alerts about the audit fire, and series that do not."""

from __future__ import annotations

from tests.testkit.chart.alert_examples import LONG, NS, Example

_POD = f'{NS}, pod="gpuward-audit-0", job="gpuward-audit", instance="10.0.0.2:8081"'
_SUCCESS = f"gpuward_audit_success_timestamp_seconds{{{_POD}}}"
_PODS = f"gpuward_audit_unrequested_gpu_pods{{{_POD}}}"
_DEVICES = f"gpuward_audit_devices_given_twice{{{_POD}}}"
_SICK = f"gpuward_audit_unhealthy_devices{{{_POD}}}"

AUDIT_EXAMPLES: dict[str, list[Example]] = {
    "GpuwardGpusNotRequested": [
        Example({_PODS: f"0x20 3{LONG}"}, {_PODS: f"0{LONG}"}, {}, {"$value": "3"}),
    ],
    "GpuwardDeviceGivenTwice": [
        Example({_DEVICES: f"0x20 1{LONG}"}, {_DEVICES: f"0{LONG}"}, {}, {"$value": "1"}),
    ],
    "GpuwardDeviceUnhealthy": [
        Example({_SICK: f"0x20 2{LONG}"}, {_SICK: f"0{LONG}"}, {}, {"$value": "2"}),
    ],
    "GpuwardAuditLate": [
        # promtool's clock begins at 0, at one sample a minute.
        Example({_SUCCESS: f"0{LONG}"}, {_SUCCESS: f"0+60{LONG}"}, after="400m"),
    ],
}
