"""The command `gpuward console`."""

from __future__ import annotations

import argparse
import ipaddress

from console.options import ANY, make_parser


def main(arguments: list[str]) -> int:
    """Run the command with these arguments; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.demo and options.files:
        parser.error("--demo and --from are two clusters: leave one out")
    if why := _unsafe(options):
        parser.error(why)
    from console.run import run  # noqa: PLC0415  # it takes long to load, and help and completion do without

    return run(options)


def _unsafe(options: argparse.Namespace) -> str:
    """Return why the options would open the cluster to all users, or make no sense; else empty."""
    listen = options.listen
    is_loopback = listen != ANY and ipaddress.ip_address(listen).is_loopback
    if not (is_loopback or options.authenticate or options.export):
        return (
            f"--listen {listen}: everybody who reaches it would see all that your account "
            "sees: add --authenticate, or listen on the loopback address"
        )
    if options.authenticate and (options.demo or options.files or options.export):
        return "--authenticate asks an API server: leave --demo, --from and --export out"
    if options.proxy_secret and not options.authenticate:
        return "--proxy-secret is for --authenticate: add it"
    return ""
