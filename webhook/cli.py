"""The command `gpuward serve`: run the admission webhook."""

from __future__ import annotations

from webhook.options import make_parser


def main(arguments: list[str]) -> int:
    """Serve until a signal; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if not options.dev and options.certificate is None:
        parser.error("--certificate DIR is needed, or --dev to try it without one")
    if options.dev and options.certificate is not None:
        parser.error("--dev makes a certificate of its own; leave out --certificate")
    if options.print_configuration and not options.dev:
        parser.error("--print-configuration goes with --dev")
    if options.fallback_policy and not options.policy:
        parser.error("--fallback-policy takes the place of --policy FILE, which is missing")
    from webhook.run import run  # noqa: PLC0415  # it takes long to load, and help and completion do without

    return run(options)
