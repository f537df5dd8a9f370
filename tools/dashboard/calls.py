"""Panels about the requests that API servers send."""

from __future__ import annotations

from tools.dashboard.panel import ENTRIES, OURS, Panel, counted, quantile, rate

API_SERVERS = [
    Panel(
        "Admitted without evaluation",
        "Objects per hour that were admitted because the webhook call failed (failurePolicy "
        "Ignore). Should be empty.",
        "short",
        {"{{name}}": counted("apiserver_admission_webhook_fail_open_count", "name", ENTRIES)},
    ),
    Panel(
        "Refused because a webhook call failed",
        "Objects per hour that were refused because the webhook call failed (failurePolicy Fail). "
        "Should be empty.",
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
        "Requests, as API servers count them",
        "By webhook entry. The name of the entry contains the mode.",
        "reqps",
        {"{{name}}": rate("apiserver_admission_webhook_request_total", "name", ENTRIES)},
    ),
    Panel(
        "Time that API servers wait (p99)",
        "The time includes the network and the wait in gpuward. It must stay well below "
        "registration.timeoutSeconds.",
        "s",
        {
            "{{name}}": quantile(
                "0.99", "apiserver_admission_webhook_admission_duration_seconds", "name", ENTRIES
            )
        },
    ),
    Panel(
        "Not sent because of match conditions",
        "Objects that API servers did not send, because no rule can find anything in them.",
        "reqps",
        {"{{name}}": rate("apiserver_admission_match_condition_exclusions_total", "name", ENTRIES)},
    ),
    Panel(
        "Match conditions that failed",
        "Objects per hour for which failurePolicy decided, because the API server could not "
        "evaluate a condition. Should be empty.",
        "short",
        {
            "{{name}}": counted(
                "apiserver_admission_match_condition_evaluation_errors_total", "name", ENTRIES
            )
        },
    ),
]
REQUESTS = [
    Panel(
        "Evaluation time, by path",
        "The time to decode, evaluate and encode one review.",
        "s",
        {
            f"{{{{path}}}} p{name}": quantile(
                share, "gpuward_request_duration_seconds", "path", OURS
            )
            for name, share in (("50", "0.5"), ("90", "0.9"), ("99", "0.99"))
        },
    ),
    Panel(
        "Requests, by outcome",
        "Reviews that got a decision, by mode and outcome.",
        "reqps",
        {"{{mode}}: {{outcome}}": rate("gpuward_requests_total", "mode, outcome")},
    ),
    Panel(
        "HTTP errors and rejected connections",
        "Requests without a decision, by reason. docs/webhook-server.md explains the reasons. API "
        "servers retry after `in_flight` and `large_bodies`.",
        "ops",
        {
            "request: {{reason}}": rate("gpuward_http_errors_total", "reason"),
            "connection: {{reason}}": rate("gpuward_rejected_connections_total", "reason"),
        },
    ),
    Panel(
        "Open connections and requests",
        "Open connections, and requests whose body has not arrived yet.",
        "short",
        {
            "connections": f"sum(gpuward_connections{{{OURS}}})",
            "waiting requests": f"sum(gpuward_waiting_requests{{{OURS}}})",
        },
    ),
    Panel(
        "Large bodies being read",
        "Bytes reserved for bodies above 256 KiB, by pod. The limit is 128 MiB.",
        "bytes",
        {"{{instance}}": f"sum by (instance) (gpuward_large_body_bytes{{{OURS}}})"},
    ),
    Panel(
        "Bugs in gpuward",
        "Rules that failed, and requests that were not evaluated because of a bug, per hour. "
        "Should be empty. Please report them.",
        "short",
        {
            "{{rule}}": counted("gpuward_rule_failures_total", "rule"),
            "requests": f"sum(increase(gpuward_internal_errors_total{{{OURS}}}[1h]))",
        },
    ),
]
