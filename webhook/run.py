"""Run the admission webhook as `gpuward serve` was told to."""

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
from policies.loading import PolicyError
from terminal import write_error
from webhook.dev import DevelopmentServer
from webhook.reload.exceptions_and_inventory import GpuExceptionsFile, InventoryFiles
from webhook.reload.policy import PolicyReloader
from webhook.server.lifecycle import WebhookServer
from webhook.server.listener import AddressError, parse_address
from webhook.settings import Limits, ServerSettings
from webhook.telemetry.log import BackgroundWriter, Log
from webhook.telemetry.metrics import build_info

# How long the end of the process waits for the program that reads the log.
LAST_LINES_SECONDS = 2.0
# A review is tens of thousands of Python objects, all of which are freed after the request without
# the garbage collector. At Python's own threshold of 700 it would run several times a request.
GC_THRESHOLDS = (50_000, 10, 10)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal; the exit status."""
    writer = BackgroundWriter(sys.stderr.fileno())
    try:
        with ExitStack() as stack:
            stack.callback(writer.close, LAST_LINES_SECONDS)
            return _serve(options, Log(writer, options.log_level), stack)
    except (PolicyError, AddressError) as error:
        write_error("gpuward", *str(error).split("\n"))
        return 2


def _serve(options: argparse.Namespace, log: Log, stack: ExitStack) -> int:
    parse_address(options.listen or ":0")
    file = options.gpu_exceptions
    policy = PolicyReloader(
        options.policy,
        options.profile,
        fallback=options.fallback_policy,
        gpu_exceptions=GpuExceptionsFile(file) if file else None,
        inventory=InventoryFiles(options.inventory) if options.inventory else None,
    )
    policy.load()
    log.write("info", "starting", **build_info())
    development = None
    if options.dev:
        development = stack.enter_context(DevelopmentServer(options.listen, options.server_name))
        options.certificate, options.server_name = development.folder, None
    certificate = ServingCertificate(options.certificate, options.server_name, options.client_ca)
    log.capture_stdlib_logging()

    async def serve() -> None:
        server = await _start_server(_settings(options), policy, certificate, log)
        if development is not None:
            _print_instructions(development, server.address, to_stdout=options.print_configuration)
        # All objects that exist now live to the end, so the collector can ignore them.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        await server.run()

    # In one run: between two, uvloop loses signals.
    with asyncio.Runner(loop_factory=_event_loop_factory(options.uvloop)) as runner:
        runner.run(serve())
    return 0


def _print_instructions(development: DevelopmentServer, address: str, *, to_stdout: bool) -> None:
    if not to_stdout:
        development.print_instructions(address, sys.stdout)
        return
    sys.stdout.write(development.print_instructions(address, sys.stderr))
    sys.stdout.flush()
    # The reader, such as `kubectl apply -f -`, waits for the end of the output.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _start_server(
    settings: ServerSettings, policy: PolicyReloader, certificate: ServingCertificate, log: Log
) -> WebhookServer:
    server = WebhookServer(settings, policy, certificate, log)
    await server.start()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, server, number)
    log.write(
        "info",
        "serving",
        address=server.address,
        metrics_address=server.metrics_address,
        ready=server.not_ready_reason() or "yes",
        policy=policy.active.digest or "default",
    )
    return server


def _on_signal(server: WebhookServer, number: int) -> None:
    if server.handler.draining:
        os._exit(128 + number)
    server.begin_drain()


def _settings(options: argparse.Namespace) -> ServerSettings:
    local = "127.0.0.1" if options.dev else ""
    drain = options.drain_seconds
    if drain is None:
        drain = 0.0 if options.dev else ServerSettings().drain_seconds
    return ServerSettings(
        listen=options.listen or (f"{local}:8443" if local else ServerSettings().listen),
        metrics_listen=options.metrics_listen or (f"{local}:0" if local else ":8080"),
        drain_seconds=drain,
        limits=Limits(
            read_seconds=options.read_seconds,
            in_flight=options.max_in_flight,
            connections=options.max_connections,
        ),
        counted_namespaces=tuple(options.count_namespace),
        log_user_names=options.log_user_names,
    )


def _event_loop_factory(wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:  # noqa: FBT001
    if not wanted or sys.platform != "linux":
        return None
    try:
        import uvloop  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
