"""The console in a thread of its own, for browsers and other clients."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from cluster.source.store import ObjectStore
from console.access import Access
from console.demo import demo_source
from console.run import take_demo_log
from console.server import Console
from console.state import FOLLOWED, ClusterState
from policies.loading import default_policy

HOSTS = frozenset({"localhost", "127.0.0.1"})


def live_state(
    objects: list[Any], title: str = "test cluster", *, team_label: str = ""
) -> ClusterState:
    """The state of a cluster with these objects, which a test may change by `put` and `drop`."""
    store = ObjectStore()
    for raw in objects:
        store.put(raw)
    state = ClusterState(title, store, default_policy(), team_label=team_label)
    for resource in FOLLOWED:
        for raw in objects:
            if raw["kind"] == resource.kind:
                state.put(resource, raw)
        state.listed(resource)
    return state


def demo_objects(now: datetime.datetime | None = None) -> list[Any]:
    """The objects of the cluster that `gpuward console --demo` shows."""
    return [*demo_source(now).list_all({}, None, lambda _: None)]


def demo_state(now: datetime.datetime | None = None) -> ClusterState:
    """The state of the cluster that `gpuward console --demo` shows."""
    state = live_state(demo_objects(now), "demo cluster")
    take_demo_log(state)
    return state


@contextmanager
def serve(state: ClusterState, access: Access | None = None) -> Iterator[str]:
    """Serve the console about `state` on a free port; yields its address."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    found: list[int] = []

    async def start() -> web.AppRunner:
        made = Console(state, HOSTS, access).application()
        runner = web.AppRunner(made, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.append(runner.addresses[0][1])
        started.set()
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    thread = threading.Thread(target=run, name="console")
    thread.start()
    try:
        assert started.wait(60), "the console has not started"
        yield f"http://localhost:{found[0]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
