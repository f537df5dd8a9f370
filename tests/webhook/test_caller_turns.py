"""Tests of the turns that callers of the server take."""

from __future__ import annotations

import asyncio

import pytest

from webhook.server import turns as turns_module
from webhook.server.turns import CallerTurns


@pytest.fixture(autouse=True)
def one_request_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two requests are answered without turns."""
    monkeypatch.setattr(turns_module, "_SECONDS_WITHOUT_TURNS", 0.0)


async def answers(callers: list[str], cancelled: frozenset[int] = frozenset()) -> list[str]:
    """The callers of requests that arrive in the same moment, in the order of the answers."""
    turns, order = CallerTurns(), list[str]()
    taken = [turns.take(caller) for caller in callers]
    for index in cancelled:
        taken[index].cancel()

    async def answer(caller: str, turn: asyncio.Future[None]) -> None:
        await turn
        order.append(caller)

    pairs = enumerate(zip(callers, taken, strict=True))
    await asyncio.gather(*(answer(*pair) for n, pair in pairs if n not in cancelled))
    assert turns.take("later").done()
    return order


async def test_who_sends_much_waits_for_who_sends_little() -> None:
    busy = CallerTurns()
    busy.take("first")
    greedy = [busy.take("greedy") for _ in range(1000)]
    modest = busy.take("modest")
    await modest
    assert sum(turn.done() for turn in greedy) <= 2


async def test_everybody_gets_a_turn() -> None:
    callers = ["a"] * 500 + ["b"] * 300 + ["c"]
    assert sorted(await answers(callers)) == callers


async def test_who_no_longer_waits_delays_nobody() -> None:
    callers = ["a"] * 500 + ["b"]
    cancelled = frozenset(range(1, 500))
    assert await answers(callers, cancelled) == ["a", "b"]


async def test_what_arrives_meanwhile_is_received_between_two_turns() -> None:
    turns, rounds = CallerTurns(), 0

    def count() -> None:
        nonlocal rounds
        rounds += 1
        asyncio.get_running_loop().call_soon(count)

    count()
    waiting = [turns.take("greedy") for _ in range(1000)]
    await asyncio.gather(*waiting)
    assert rounds >= 1000
