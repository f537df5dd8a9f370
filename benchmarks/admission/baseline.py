"""The baseline: a minimal aiohttp webhook that decodes the review and answers a constant patch.

It uses the same TLS contexts, listener, limits, codec and event loop as gpuward's server. Its
arguments are the folder of the certificate, and a JSON file with the patch for each path.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path

from aiohttp.web import BaseRequest, Response
from multidict import CIMultiDict

from certs.serving import ServingCertificate
from webhook.admission.review import CODEC
from webhook.server.listener import HttpServer, Listener, TakeTurn, listening_socket
from webhook.settings import Limits

_JSON = CIMultiDict({"Content-Type": "application/json", "Server": "baseline"})


def main() -> None:
    """Serve until the process is killed."""
    folder, patches = sys.argv[1:]
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(folder, json.loads(Path(patches).read_bytes())))


async def _serve(folder: str, patches: dict[str, str]) -> None:
    async def handle(request: BaseRequest, _take_turn: TakeTurn) -> Response:
        review = CODEC.loads(await request.read())
        response = {"uid": review["request"]["uid"], "allowed": True}
        patch = patches[request.path]
        if patch:
            response |= {"patchType": "JSONPatch", "patch": patch}
        answer = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview"}
        return Response(body=CODEC.dumps({**answer, "response": response}), headers=_JSON)

    limits = Limits()
    server = HttpServer(
        handle,
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=limits.keep_alive_seconds,
        lingering_time=limits.read_seconds,
        max_line_size=limits.line_bytes,
        max_field_size=limits.header_bytes,
        max_headers=limits.headers,
    )
    certificate = ServingCertificate(folder, None)
    certificate.reload()
    server_socket = listening_socket("127.0.0.1:0")
    port = server_socket.getsockname()[1]
    Listener(server, server_socket, certificate.context, limits, lambda _: None).start()
    gc.collect()
    gc.freeze()
    line = {"event": "serving", "address": f"127.0.0.1:{port}"}
    print(json.dumps(line), file=sys.stderr, flush=True)
    await asyncio.Event().wait()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes loops of uvloop, as the server does; None if it is not installed."""
    try:
        import uvloop  # noqa: PLC0415  # an optional dependency
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


if __name__ == "__main__":
    main()
