"""The least that a webhook in aiohttp does: decode the review, answer with a constant patch.

The same TLS, listener, settings, codec and event loop as the server's own. Used as
`benchmarks.baseline CERTIFICATE-FOLDER PATCHES`; the file PATCHES holds the patch of each path.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path

from aiohttp.web import BaseRequest, Response, Server
from multidict import CIMultiDict

from certs.serving.certificate import ServingCertificate
from webhook.admission.codec import CODEC
from webhook.server.limits import Limits
from webhook.server.listener import Listener, open_socket

_JSON = CIMultiDict({"Content-Type": "application/json", "Server": "baseline"})


def main() -> None:
    """Serve until killed."""
    folder, patches = sys.argv[1:]
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(folder, json.loads(Path(patches).read_bytes())))


async def _serve(folder: str, patches: dict[str, str]) -> None:
    async def handle(request: BaseRequest) -> Response:
        review = CODEC.loads(await request.read())
        response = {"uid": review["request"]["uid"], "allowed": True}
        patch = patches[request.path]
        if patch:
            response |= {"patchType": "JSONPatch", "patch": patch}
        answer = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview"}
        return Response(body=CODEC.dumps({**answer, "response": response}), headers=_JSON)

    limits = Limits()
    server = Server(
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
    listening = open_socket("127.0.0.1:0")
    port = listening.getsockname()[1]
    Listener(server, listening, certificate.context, limits, lambda _: None).start()
    gc.collect()
    gc.freeze()
    line = {"event": "serving", "address": f"127.0.0.1:{port}"}
    print(json.dumps(line), file=sys.stderr, flush=True)
    await asyncio.Event().wait()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


if __name__ == "__main__":
    main()
