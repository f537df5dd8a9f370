"""Run `gpuward serve`: from the command line to the end of the process."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack

from certs.serving import ServingCertificate
from policies.load import PolicyError
from webhook.dev import Development
from webhook.lifecycle import Service, Settings
from webhook.limits import Limits
from webhook.listener import AddressError, parse_address
from webhook.log import Log
from webhook.options import parser as command_line
from webhook.policy_file import PolicyFile

# A review is tens of thousands of objects that are gone after the call, without any help: at
# Python's own threshold of 700 the collector looks through them several times a call.
COLLECT_AFTER = (50_000, 10, 10)


def main(arguments: list[str]) -> int:
    """Serve as the command line says; the exit status."""
    parser = command_line()
    options = parser.parse_args(arguments)
    if not options.dev and options.certificate is None:
        parser.error("--certificate DIR is needed, or --dev to try it without one")
    if options.dev and options.certificate is not None:
        parser.error("--dev makes a certificate of its own; leave out --certificate")
    if options.print_configuration and not options.dev:
        parser.error("--print-configuration goes with --dev")
    log = Log(sys.stderr.buffer, options.log_level)
    try:
        with ExitStack() as stack:
            return _serve(options, log, stack)
    except (PolicyError, AddressError) as error:
        sys.stderr.write(f"gpuward: {error}\n")
        return 2


def _serve(options: argparse.Namespace, log: Log, stack: ExitStack) -> int:
    parse_address(options.listen or ":0")
    policy = PolicyFile(options.policy, options.profile)
    policy.load()
    development = None
    if options.dev:
        development = stack.enter_context(Development(options.listen, options.server_name))
        options.certificate, options.server_name = development.folder, None
    certificate = ServingCertificate(options.certificate, options.server_name, options.client_ca)
    log.take_over()
    with asyncio.Runner(loop_factory=_loop_factory(options.uvloop)) as runner:
        service = runner.run(_started(_settings(options), policy, certificate, log))
        if development is not None:
            _introduce(development, service.address, whole=options.print_configuration)
        # What is alive now stays alive: the collector need not look at it in the middle of a call.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)
        runner.run(service.run())
    return 0


def _introduce(development: Development, address: str, *, whole: bool) -> None:
    if not whole:
        development.introduce(address, sys.stdout)
        return
    sys.stdout.write(development.introduce(address, sys.stderr))
    sys.stdout.flush()
    # What reads it, such as `kubectl apply -f -`, waits for the end, and we do not end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _started(
    settings: Settings, policy: PolicyFile, certificate: ServingCertificate, log: Log
) -> Service:
    service = Service(settings, policy, certificate, log)
    await service.start()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, service, number)
    log.write(
        "info",
        "serving",
        address=service.address,
        metrics_address=service.metrics_address,
        ready=service.obstacle() or "yes",
        policy=policy.acting.digest or "default",
    )
    return service


def _on_signal(service: Service, number: int) -> None:
    if service.webhook.draining:
        os._exit(128 + number)
    service.leave()


def _settings(options: argparse.Namespace) -> Settings:
    local = "127.0.0.1" if options.dev else ""
    drain = options.drain_seconds
    if drain is None:
        drain = 0.0 if options.dev else Settings().drain_seconds
    return Settings(
        listen=options.listen or (f"{local}:8443" if local else Settings().listen),
        metrics_listen=options.metrics_listen or (f"{local}:0" if local else ":8080"),
        drain_seconds=drain,
        limits=Limits(
            read_seconds=options.read_seconds,
            in_flight=options.max_in_flight,
            connections=options.max_connections,
        ),
    )


def _loop_factory(wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:  # noqa: FBT001
    if not wanted or sys.platform != "linux":
        return None
    try:
        import uvloop  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
