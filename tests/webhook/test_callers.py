"""The webhook's answers to dry runs that ask from where it is called."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from policies.loading import default_policy
from tests.testkit.admission.reviews import container, pod, review_body, variable
from tests.testkit.admission.server import Serve, serving
from tests.testkit.cases import TODAY
from webhook.admission.answer import answer
from webhook.admission.callers import ASKING_POD, Caller, caller_in, with_caller
from webhook.admission.decider import Decider
from webhook.registration import ROUTES

FROM_HERE = "gpuward was called from 127.0.0.1 without a client certificate"


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts servers."""
    async with serving(tmp_path) as start:
        yield start


def asking(name: str = ASKING_POD, value: str = "void", *, dry_run: bool = True) -> bytes:
    """A review of a new pod, whose variable has a value in which no rule finds a fault."""
    asks = pod(container(**variable(value)))
    asks["metadata"]["name"] = name
    body = review_body(asks)
    body["request"]["dryRun"] = dry_run
    return json.dumps(body).encode()


def warnings(reply: Any) -> list[str]:
    found: list[str] = reply.response.get("warnings", [])
    return found


@pytest.mark.parametrize("path", ROUTES)
async def test_a_dry_run_that_asks_is_told_from_where_it_came(serve: Serve, path: str) -> None:
    caller = await (await serve()).connect()
    for _ in range(2):  # the second answer is that of a kept decision
        reply = await caller.post(path, asking())
        assert (reply.response["allowed"], warnings(reply)) == (True, [FROM_HERE])


async def test_only_those_who_ask_are_told(serve: Serve) -> None:
    """A kept decision about one who asks is no answer to one who does not."""
    caller = await (await serve()).connect()
    assert warnings(await caller.post("/mutate/warn", asking()))
    for body in (asking("another"), asking(dry_run=False)):
        assert not warnings(await caller.post("/mutate/warn", body))


async def test_what_the_webhook_decides_stays_the_same(serve: Serve) -> None:
    caller = await (await serve()).connect()
    for path in ROUTES:
        asked = await caller.post(path, asking(value="all"))
        other = await caller.post(path, asking("another", value="all"))
        assert warnings(asked) == [*warnings(other), FROM_HERE]
        for field in ("allowed", "patch"):
            assert asked.response.get(field) == other.response.get(field)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("::ffff:10.0.0.5", "10.0.0.5"),
        ("fd00::1", "fd00::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_an_address_is_as_network_policies_have_it(address: str, shown: str) -> None:
    found = answer(Decider(default_policy()), ROUTES["/mutate/deny"], asking(), TODAY)
    told = json.loads(with_caller(found, Caller(address, is_verified=True)).body)
    assert [caller_in(text) for text in told["response"]["warnings"]] == [
        Caller(shown, is_verified=True)
    ]


def test_other_warnings_name_no_caller() -> None:
    assert caller_in("gpuward [visible-devices-env] was called from 10.0.0.5") is None
