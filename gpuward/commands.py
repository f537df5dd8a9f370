"""The table of all subcommands. It imports nothing, for the import path is not yet set."""

from __future__ import annotations

# Subcommand -> its module (and the function, if that is not `main`), the extra that installs its
# dependencies, and a description.
COMMANDS = {
    "lint": ("lint.cli", "", "find faults in GPU manifests"),
    "fix": ("lint.cli:fix", "", "fix faults in files, in place"),
    "baseline": ("lint.baseline.cli", "", "list known findings, so that only new ones fail"),
    "lsp": ("lint.language_server.cli", "lsp", "serve an editor: findings, fixes, explanations"),
    "mcp": (
        "gpuward.mcp_server.cli",
        "mcp",
        "serve an assistant: findings, fixes, explanations, GPUs",
    ),
    "audit": ("cluster.audit.cli", "cluster", "find faults in what a cluster runs"),
    "serve": ("webhook.cli", "webhook", "run the admission webhook"),
    "certs": (
        "cluster.controllers.certs_command",
        "certs",
        "make, renew and check the certificates of the webhook",
    ),
    "webhooks": (
        "cluster.webhooks.cli",
        "certs",
        "check whether the webhook works, watch or remove it",
    ),
    "exceptions": (
        "cluster.controllers.exceptions_command",
        "certs",
        "run the controller that accepts GpuExceptions",
    ),
    "gpus": (
        "cluster.gpus.cli",
        "cluster",
        "show the GPUs of a cluster, and who has them",
    ),
    "why": ("cluster.why.cli", "cluster", "say why a pod is Pending"),
    "init": (
        "cluster.init.cli",
        "cluster",
        "write a policy and chart values for a cluster",
    ),
    "doctor": (
        "cluster.doctor.cli",
        "cluster",
        "say whether a cluster is guarded, and fit for GPUs",
    ),
    "console": ("console.cli", "console", "serve a page: GPUs, findings, why a pod is Pending"),
    "conformance": (
        "cluster.conformance.cli",
        "cluster",
        "write a report: which ways to a GPU a cluster closes",
    ),
    "modes": (
        "cluster.modes.cli",
        "cluster",
        "show the modes of namespaces, and change them in bulk",
    ),
    "inventory": (
        "cluster.controllers.inventory_command",
        "certs",
        "run the controller that lists other objects for the webhook",
    ),
    "export": (
        "webhook.in_process.cli",
        "",
        "write the policy as objects that API servers evaluate themselves",
    ),
    "hook": ("lint.hooks.cli", "", "evaluate commits and pushes, as Git hooks"),
    "policy": ("lint.policy.cli", "", "check, show, test and compare policies"),
    "explain": ("reports.explain", "", "explain what a rule does and why"),
    "report": ("lint.report", "", "print what reproduces a problem, with names replaced"),
    "rules": ("lint.rules_command", "", "list the rules"),
    "completion": ("gpuward.completion", "completion", "print what completes commands in a shell"),
    "manual": ("gpuward.manual", "", "print the manual page"),
}
