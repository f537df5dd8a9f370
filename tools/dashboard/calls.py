"""Panels about the requests of API servers."""

from __future__ import annotations

from tools.dashboard.panel import ENTRIES, OURS, Panel, counted, quantile, rate

API_SERVERS = [
    Panel(
        "Admitted without evaluation",
        "Objects that were admitted because a call failed (failurePolicy Ignore), an hour. "
        "Should be empty.",
        "short",
        {"{{name}}": counted("apiserver_admission_webhook_fail_open_count", "name", ENTRIES)},
    ),
    Panel(
        "Refused because a call failed",
        "Objects that were refused because a call failed (failurePolicy Fail), an hour. "
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
        "By webhook entry, which names the mode.",
        "reqps",
        {"{{name}}": rate("apiserver_admission_webhook_request_total", "name", ENTRIES)},
    ),
    Panel(
        "Time that API servers wait (p99)",
        "Including the network and the wait in gpuward. It must stay well below "
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
        "Evaluation time, by path",
        "To decode, evaluate and encode one review.",
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
        "Reviews that were answered, by mode and outcome.",
        "reqps",
        {"{{mode}}: {{outcome}}": rate("gpuward_requests_total", "mode, outcome")},
    ),
    Panel(
        "HTTP errors and rejected connections",
        "Requests without a decision, by reason: docs/webhook-server.md explains them. API servers "
        "retry after `in_flight` and `large_bodies`.",
        "ops",
        {
            "call: {{reason}}": rate("gpuward_http_errors_total", "reason"),
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
        "Rules that failed, and requests that a bug left without an evaluation, an hour. "
        "Should be empty: please report them.",
        "short",
        {
            "{{rule}}": counted("gpuward_rule_failures_total", "rule"),
            "requests": f"sum(increase(gpuward_internal_errors_total{{{OURS}}}[1h]))",
        },
    ),
]
