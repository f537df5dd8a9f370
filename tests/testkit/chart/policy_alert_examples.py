"""Series that make alerts about the policy itself fire, and series that do not."""

from __future__ import annotations

from tests.testkit.chart.alert_examples import LONG, POD, POD_LABELS, Example

EXCEPTION_LABELS = {
    "exception": "3",
    "rules": "privileged-gpu",
    "namespaces": "nccl-tests",
    "reason": "RDMA",
}
EXCEPTION = ", ".join(f'{name}="{value}"' for name, value in EXCEPTION_LABELS.items())

POLICY_EXAMPLES: dict[str, list[Example]] = {
    "GpuwardPolicyRefused": [
        Example(
            {f"gpuward_policy_valid{{{POD}}}": f"1x20 0{LONG}"},
            {f"gpuward_policy_valid{{{POD}}}": f"1x20 0x2 1{LONG}"},
            POD_LABELS,
            {"$labels.pod": "gpuward-0"},
        )
    ],
    "GpuwardExceptionsNotUsed": [
        Example(
            {f"gpuward_gpu_exceptions_valid{{{POD}}}": f"1x9 0{LONG}"},
            {f"gpuward_gpu_exceptions_valid{{{POD}}}": f"1x20 0x8 1{LONG}"},
            POD_LABELS,
            {"$labels.pod": "gpuward-0"},
        )
    ],
    "GpuwardExceptionEnds": [
        Example(
            {f"gpuward_exception_expiry_seconds{{{POD}, {EXCEPTION}}}": samples},
            {f"gpuward_exception_expiry_seconds{{{POD}, {EXCEPTION}}}": quiet},
            EXCEPTION_LABELS,
            {f"$labels.{name}": value for name, value in EXCEPTION_LABELS.items()}
            | {"$value | humanizeDuration": left},
        )
        for samples, quiet, left in (
            # 1800 seconds after the start: 13 days, 23 hours and 30 minutes are left.
            (f"1209600-60{LONG}", f"1500000-60{LONG}", "13d 23h 30m 0s"),
            (f"0-60{LONG}", f"-700000-60{LONG}", "-30m 0s"),
        )
    ],
}
