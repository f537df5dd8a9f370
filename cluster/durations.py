"""Durations as options of the command line."""

from __future__ import annotations

import argparse

_MAX_SECONDS = 86_400  # a day


def seconds(text: str) -> float:
    """The number of seconds in `text`, at most a day; for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _MAX_SECONDS:  # also refuses what is no number
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds")
    return number


def seconds_between(text: str) -> float:
    """The same, but at least one second: the time between two repetitions."""
    number = seconds(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected at least 1 second")
    return number
