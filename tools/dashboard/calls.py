"""Panels about the calls of API servers."""

from __future__ import annotations

from tools.dashboard.panel import ENTRIES, OURS, Panel, counted, quantile, rate

API_SERVERS = [
    Panel(
        "Let through unjudged",
        "Calls that failed and whose objects were let through (failurePolicy Ignore), an hour. "
        "Should be empty.",
        "short",
        {"{{name}}": counted("apiserver_admission_webhook_fail_open_count", "name", ENTRIES)},
    ),
    Panel(
        "Refused because a call failed",
        "Objects that were refused for no rule, but because the call or its answer failed, an "
        "hour. Should be empty.",
        "short",
        {
            "{{name}}: {{error_type}}": counted(
                "apiserver_admission_webhook_rejection_count",
                "name, error_type",
                f'{ENTRIES}, error_type!="no_error"',
            )
        },
    ),
    Panel(
        "Calls, as API servers count them",
        "By webhook entry, which names the mode.",
        "reqps",
        {"{{name}}": rate("apiserver_admission_webhook_request_total", "name", ENTRIES)},
    ),
    Panel(
        "Time that calls cost API servers (p99)",
        "With the network and the wait in gpuward. It must stay well below "
        "registration.timeoutSeconds.",
        "s",
        {
            "{{name}}": quantile(
                "0.99", "apiserver_admission_webhook_admission_duration_seconds", "name", ENTRIES
            )
        },
    ),
    Panel(
        "Spared by match conditions",
        "Objects that API servers did not send, because they can concern no rule.",
        "reqps",
        {"{{name}}": rate("apiserver_admission_match_condition_exclusions_total", "name", ENTRIES)},
    ),
    Panel(
        "Match conditions that failed",
        "Objects for which failurePolicy decided, because a condition could not be evaluated, an "
        "hour. Should be empty.",
        "short",
        {
            "{{name}}": counted(
                "apiserver_admission_match_condition_evaluation_errors_total", "name", ENTRIES
            )
        },
    ),
]
CALLS = [
    Panel(
        "Time to judge, by door",
        "To decode, judge and encode one review.",
        "s",
        {
            f"{{{{path}}}} p{name}": quantile(
                share, "gpuward_request_duration_seconds", "path", OURS
            )
            for name, share in (("50", "0.5"), ("90", "0.9"), ("99", "0.99"))
        },
    ),
    Panel(
        "Calls, by what came of them",
        "Reviews that were answered, by mode and outcome.",
        "reqps",
        {"{{mode}}: {{outcome}}": rate("gpuward_requests_total", "mode, outcome")},
    ),
    Panel(
        "Calls and connections turned away",
        "Without a decision, by reason: docs/webhook-server.md explains them. `in_flight` and "
        "`large_bodies` are tried again by API servers.",
        "ops",
        {
            "call: {{reason}}": rate("gpuward_refused_calls_total", "reason"),
            "connection: {{reason}}": rate("gpuward_refused_connections_total", "reason"),
        },
    ),
    Panel(
        "On their way",
        "Open connections, and requests whose body has not arrived yet.",
        "short",
        {
            "connections": f"sum(gpuward_connections{{{OURS}}})",
            "waiting requests": f"sum(gpuward_waiting_requests{{{OURS}}})",
        },
    ),
    Panel(
        "Large bodies on their way",
        "Bytes set aside for bodies above 256 KiB, by pod. 128 MiB are the bound.",
        "bytes",
        {"{{instance}}": f"sum by (instance) (gpuward_large_body_bytes{{{OURS}}})"},
    ),
    Panel(
        "Faults of gpuward",
        "Rules that failed, and calls left unjudged, an hour. Should be empty: please report them.",
        "short",
        {
            "{{rule}}": counted("gpuward_rule_failures_total", "rule"),
            "whole calls": f"sum(increase(gpuward_faults_total{{{OURS}}}[1h]))",
        },
    ),
]
