"""Tests of the writer of the log: it loses nothing in normal times and never waits for a reader."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from webhook.telemetry.log import BackgroundWriter

LINE = b"x" * 99 + b"\n"
MANY = 5_000


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, int]]:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader:
        yield reader, writing


def test_all_lines_are_written_in_order_before_the_end(pipe: tuple[BinaryIO, int]) -> None:
    reader, writing = pipe
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.extend(reader))
    thread.start()
    writer = BackgroundWriter(writing)
    lines = [b"%d\n" % number for number in range(MANY)]
    for line in lines:
        writer.write(line)
    writer.close(60)
    os.close(writing)
    thread.join()
    assert found == lines
    assert writer.dropped_lines == 0


def test_a_line_is_written_without_further_ones(pipe: tuple[BinaryIO, int]) -> None:
    reader, writing = pipe
    writer = BackgroundWriter(writing)
    for _ in range(3):
        writer.write(LINE)
        assert reader.read(len(LINE)) == LINE
        writer.write(LINE)
        writer.flush()
        assert reader.read(len(LINE)) == LINE
    writer.close(60)
    os.close(writing)


def test_a_reader_who_stalls_costs_lines_and_no_time(pipe: tuple[BinaryIO, int]) -> None:
    reader, writing = pipe
    writer = BackgroundWriter(writing, max_waiting_bytes=100 * len(LINE))
    for _ in range(MANY):
        writer.write(LINE)
    assert 0 < writer.dropped_lines < MANY
    writer.close(0.01)  # no reader: the last lines are given up
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.extend(reader))
    thread.start()
    writer.close(60)
    os.close(writing)
    thread.join()
    assert found == [LINE] * (MANY - writer.dropped_lines)


def test_a_reader_who_is_gone_stops_nothing(pipe: tuple[BinaryIO, int]) -> None:
    reader, writing = pipe
    reader.close()
    writer = BackgroundWriter(writing)
    writer.write(LINE)
    writer.close(60)
    os.close(writing)
    assert writer.dropped_lines == 1


def test_a_descriptor_that_does_not_wait_gets_every_line(pipe: tuple[BinaryIO, int]) -> None:
    reader, writing = pipe
    os.set_blocking(writing, False)
    writer = BackgroundWriter(writing)
    for _ in range(MANY):
        writer.write(LINE)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.extend(reader))
    thread.start()
    writer.close(60)
    os.close(writing)
    thread.join()
    assert found == [LINE] * MANY
