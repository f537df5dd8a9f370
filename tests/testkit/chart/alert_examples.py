"""Series that make alerts about requests and the policy fire, and series that do not."""

from __future__ import annotations

from typing import NamedTuple

NS = 'namespace="gpuward-system"'
POD = f'{NS}, pod="gpuward-0", job="gpuward-replicas", instance="10.0.0.1:8080"'
API = 'job="apiserver", instance="10.1.0.1:6443"'
ENTRY = f'{API}, name="pods.deny.gpuward.io", type="admit"'
# promtool's shorthand for samples: START+STEPxCOUNT, one a minute; this is two days.
LONG = "x2880"


_EVENTS = (f"_x25 1{LONG}", f"2x25 3{LONG}")


class Example(NamedTuple):
    """Series that make an alert fire at `after`, and series that keep it from firing.

    `quiet` must not fire from the minute `quiet_from` on. `labels` are the labels that the alert
    has besides those of its rule; `template_values` replace the templates in its annotations.
    """

    fires: dict[str, str]
    quiet: dict[str, str]
    labels: dict[str, str] = {}  # noqa: RUF012  # never written to
    template_values: dict[str, str] = {}  # noqa: RUF012
    after: str = "30m"
    quiet_from: int = 1


def ready_pod_series(samples: str, draining: str = f"0{LONG}") -> dict[str, str]:
    """The series of a pod that has loaded a certificate."""
    return {
        f"gpuward_certificate_not_after_timestamp_seconds{{{POD}}}": samples,
        f"gpuward_draining{{{POD}}}": draining,
    }


def _scraped_series(series: dict[str, str]) -> dict[str, str]:
    """The series of an API server that Prometheus has scraped all the time."""
    return {f"up{{{API}}}": f"1{LONG}"} | series


def _rule_outcomes(samples: str) -> dict[str, str]:
    labels = f'{POD}, rule="visible-devices-env", outcome="denied", mode="deny", dry_run="false"'
    return {f"gpuward_rule_outcomes_total{{{labels}}}": samples}


def _first_and_later_events(series: str, rule: str) -> list[Example]:
    """Examples of an alert that fires for the first event of a rule, and for later ones."""
    labels, values = {"rule": rule}, {"$labels.rule": rule}
    quiet = {series: f"2{LONG}"}
    first, later = (Example({series: s}, quiet, labels, values, quiet_from=11) for s in _EVENTS)
    return [first, later]


def _durations(slow: str, bound: str = "2.5") -> dict[str, str]:
    name = "apiserver_admission_webhook_admission_duration_seconds_bucket"
    return {
        f'{name}{{{ENTRY}, le="0.5"}}': "0+0x60",
        f'{name}{{{ENTRY}, le="{bound}"}}': slow,
        f'{name}{{{ENTRY}, le="+Inf"}}': slow,
    }


_RULE_FAILURES = f'gpuward_rule_failures_total{{{POD}, rule="request-only"}}'
_NOT_EVALUATED = (
    f'gpuward_rule_outcomes_total{{{POD}, rule="timeout", outcome="denied", path="validate", '
    'mode="deny"}'
)
_CALL_ERRORS = (
    f'apiserver_admission_webhook_rejection_count{{{ENTRY}, error_type="calling_webhook_error", '
    'operation="CREATE", rejection_code="0"}'
)
_REFUSALS = _CALL_ERRORS.replace("calling_webhook_error", "no_error")
_FAIL_OPEN = f"apiserver_admission_webhook_fail_open_count{{{ENTRY}}}"
_FOREIGN_OPEN = _FAIL_OPEN.replace("gpuward.io", "example.com")
_CONDITION_ERRORS = (
    f'apiserver_admission_match_condition_evaluation_errors_total{{{ENTRY}, kind="webhook"}}'
)
_NAME_VALUES = {"$labels.name": "pods.deny.gpuward.io"}
_NAME_LABELS = {"name": "pods.deny.gpuward.io"}
POD_LABELS = {"pod": "gpuward-0"}

REQUEST_EXAMPLES: dict[str, list[Example]] = {
    "GpuwardDown": [
        # A pod that waits for its certificate has no such series; a draining pod has.
        Example({f"gpuward_draining{{{POD}}}": f"0{LONG}"}, ready_pod_series(f"1{LONG}")),
        Example(
            ready_pod_series(f"1{LONG}", f"1{LONG}"), ready_pod_series(f"1x20 stale _x3 1{LONG}")
        ),
    ],
    "GpuwardFailingOpen": [
        Example(
            _scraped_series({_FAIL_OPEN: f"5x25 6{LONG}"}),
            _scraped_series({_FAIL_OPEN: f"5{LONG}"}),
            _NAME_LABELS,
            _NAME_VALUES,
        ),
        # The first failure ever, and failures counted before the first scrape.
        Example(
            _scraped_series({_FAIL_OPEN: f"_x25 1{LONG}"}),
            {_FAIL_OPEN: f"_x25 9{LONG}"},
            _NAME_LABELS,
            _NAME_VALUES,
        ),
        Example(
            _scraped_series({_FAIL_OPEN: f"_x25 1{LONG}"}),
            _scraped_series({_FOREIGN_OPEN: "0+1x60"}),
            _NAME_LABELS,
            _NAME_VALUES,
        ),
    ],
    "GpuwardBlocking": [
        Example(
            _scraped_series({_CALL_ERRORS: f"_x25 1{LONG}"}),
            _scraped_series({_REFUSALS: "0+9x60"}),
            _NAME_LABELS,
            _NAME_VALUES,
        ),
        Example(
            _scraped_series({_CALL_ERRORS: f"3x25 4{LONG}"}),
            {_REFUSALS: "0+9x60"},
            _NAME_LABELS,
            _NAME_VALUES,
        ),
    ],
    "GpuwardConditionFails": [
        Example(
            _scraped_series({_CONDITION_ERRORS: f"_x25 1{LONG}"}),
            _scraped_series({_CONDITION_ERRORS: f"1{LONG}"}),
            _NAME_LABELS,
            _NAME_VALUES,
        )
    ],
    "GpuwardSlow": [
        Example(
            _durations("0+60x60"),
            _durations("0+60x60", bound="1"),
            _NAME_LABELS,
            {**_NAME_VALUES, "$labels.path": "", "$value | humanizeDuration": "2.48s"},
        )
    ],
    "GpuwardOverloaded": [
        Example(
            {f'gpuward_http_errors_total{{{POD}, reason="in_flight"}}': "0+2x60"},
            {f'gpuward_http_errors_total{{{POD}, reason="in_flight"}}': "0x15 50x60"},
            template_values={"$value | humanize": "10"},
        ),
        Example(
            {f'gpuward_rejected_connections_total{{{POD}, reason="connections"}}': "0+2x60"},
            {f'gpuward_rejected_connections_total{{{POD}, reason="handshake"}}': "0+2x60"},
            template_values={"$value | humanize": "10"},
        ),
    ],
    "GpuwardHttpErrors": [
        Example(
            {f'gpuward_http_errors_total{{{POD}, reason="{reason}"}}': f"_x25 1{LONG}"},
            {f'gpuward_http_errors_total{{{POD}, reason="gone"}}': "0+2x60"},
            {"reason": reason},
            {"$labels.reason": reason},
        )
        for reason in ("too_large", "slow", "malformed", "encoding", "internal")
    ],
    "GpuwardNotEvaluated": _first_and_later_events(_NOT_EVALUATED, "timeout"),
    "GpuwardRuleFails": _first_and_later_events(_RULE_FAILURES, "request-only"),
    "GpuwardInternalErrors": [
        Example(
            {f"gpuward_internal_errors_total{{{POD}}}": f"0x25 1{LONG}"},
            {f"gpuward_internal_errors_total{{{POD}}}": f"1{LONG}"},
        )
    ],
    "GpuwardDenialsRise": [
        Example(
            _rule_outcomes("0x1425 0+8x60"),
            _rule_outcomes("0+8x2880"),
            {"rule": "visible-devices-env"},
            {"$labels.rule": "visible-devices-env", "$value | humanize": "120"},
            after="1442m",
        ),
        # A few denials are no spike, however rare they are otherwise.
        Example(
            _rule_outcomes("0x1425 0+8x60"),
            _rule_outcomes("0x1425 0+1x60"),
            {"rule": "visible-devices-env"},
            {"$labels.rule": "visible-devices-env", "$value | humanize": "120"},
            after="1442m",
        ),
    ],
}
