"""The parser of every command."""

from __future__ import annotations

import argparse
from typing import NoReturn

from terminal import printable


class CommandParser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` whose errors are printable: they quote what was given."""

    def error(self, message: str) -> NoReturn:
        """Write the usage and `message` to standard error, and exit with status 2."""
        super().error(printable(message))
