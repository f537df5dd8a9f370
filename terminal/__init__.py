"""The abilities of a terminal, and functions that write to it what others have written."""

from __future__ import annotations

import argparse
import errno
import math
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, NoReturn, TextIO

HOME_PAGE_URL = "https://github.com/gpuward/gpuward"
DOCS_URL = f"{HOME_PAGE_URL}/blob/main/docs"
"""The folder of the pages that messages name: those who install gpuward do not have the files."""

# Terminals that show OSC 8 hyperlinks, by the variables that they set.
_HYPERLINK_PROGRAMS = {"iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "rio", "Tabby"}
_HYPERLINK_TERMS = ("xterm-kitty", "alacritty", "foot", "xterm-ghostty", "wezterm", "contour")
_HYPERLINK_VARIABLES = ("WT_SESSION", "KONSOLE_VERSION", "DOMTERM")
_MIN_VTE_VERSION = 5000  # GNOME Terminal and others that use the library VTE, since version 0.50
# Of the invisible characters, U+200C, U+200D and the soft hyphen stay: texts need them.
_CONTROL_PATTERN = (
    "[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_LAST_OF_FOUR_DIGITS = 0xFFFF


def installed_version() -> str:
    """The version of gpuward; empty if it is run from a clone that is not installed."""
    from importlib import metadata  # noqa: PLC0415  # few commands need it

    try:
        return metadata.version("gpuward")
    except metadata.PackageNotFoundError:
        return ""


def reason_of(error: OSError) -> str:
    """The reason that the system gives for `error`, for a message, such as `permission denied`."""
    return (error.strerror or str(error)).lower()


def printable(text: str) -> str:
    """`text` with control characters escaped, so that it cannot control a terminal.

    So are characters that change the direction of a text or are invisible: a value such as
    "void" could be another one than it seems. So are bytes in names of files that are no UTF-8,
    which no file of UTF-8 can hold.
    """
    if text.isprintable():
        return text
    return re.sub(_CONTROL_PATTERN, lambda match: _escape(ord(match[0])), text)


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code <= _LAST_OF_FOUR_DIGITS else f"\\U{code:08x}"


def write_error(prog: str, *lines: object) -> None:
    """Write lines to standard error after the name of the command, such as `gpuward certs`.

    They are made printable: errors quote names and files that others have written.
    """
    sys.stderr.write(f"{prog}: " + "\n".join(printable(str(line)) for line in lines) + "\n")


_FULL_DISK_NUMBERS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_full_disk(error: OSError) -> bool:
    """Return whether a disk, a quota or a limit has no room for what was to be written."""
    return error.errno in _FULL_DISK_NUMBERS


def is_end_of_output(error: OSError) -> bool:
    """Return whether nothing more can be written: a disk is full, or the reader has seen enough."""
    return isinstance(error, BrokenPipeError) or is_full_disk(error)


def use_color(choice: str, out: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether to write colours to `out`: `choice` is the value of --color."""
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return out.isatty() and environment.get("TERM") != "dumb"


def width_of(out: TextIO) -> float:
    """The columns of the terminal that `out` is; without one there is no limit."""
    if not out.isatty():
        return math.inf
    import shutil  # noqa: PLC0415  # most output of hooks and CI goes elsewhere

    return shutil.get_terminal_size().columns


def display_width(text: str) -> int:
    """The columns that a terminal needs for a text without control characters."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    import unicodedata  # noqa: PLC0415  # most texts are ASCII

    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:  # drawn upon the one before
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def use_hyperlinks(choice: str, out: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether to write hyperlinks: only with colours, to a terminal that shows hyperlinks.

    `FORCE_HYPERLINK` decides for a terminal that is not known: 1 is yes, 0 is no.
    """
    if not use_color(choice, out, environment):
        return False
    if forced := environment.get("FORCE_HYPERLINK"):
        return forced != "0"
    return out.isatty() and _has_hyperlinks(environment)


def _has_hyperlinks(environment: Mapping[str, str]) -> bool:
    # tmux and screen do not say whether they pass links on; logs of CI show none.
    if any(name in environment for name in ("TMUX", "STY", "CI")):
        return False
    vte = environment.get("VTE_VERSION", "")
    return (
        environment.get("TERM_PROGRAM") in _HYPERLINK_PROGRAMS
        or environment.get("TERM", "").startswith(_HYPERLINK_TERMS)
        or any(name in environment for name in _HYPERLINK_VARIABLES)
        or (vte.isascii() and vte.isdigit() and int(vte[:9]) >= _MIN_VTE_VERSION)
    )


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions at the terminal's width: paragraphs, and items, which two spaces begin."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap  # noqa: PLC0415  # most runs print no help

        lines: list[str] = []
        for line in text.splitlines():
            # Of a paragraph, of an item that two spaces begin, or of neither.
            continued = bool(lines) and bool(lines[-1]) and bool(line) and not _is_kept(lines[-1])
            of_paragraph = continued and not lines[-1].startswith(" ") and not line.startswith(" ")
            of_item = continued and lines[-1].startswith("  ") and line.startswith("   ")
            if (of_paragraph or of_item) and not _is_kept(line):
                lines[-1] += f" {line.strip()}"
            else:
                lines.append(line)
        shown = []
        for line in lines:
            item = re.match(r" *(?:\S+ {2,})?", line)
            hanging = " " * len(item[0]) if item else ""
            kept = [line] if _is_kept(line) else []
            shown += kept or textwrap.wrap(line, width, subsequent_indent=hanging) or [""]
        return "\n".join(f"{indent}{line}".rstrip() for line in shown)


def _is_kept(line: str) -> bool:
    """Return whether a line is a part of a command or a row of a table, which is not wrapped."""
    words = line.split()
    return bool(words) and (
        words[-1] == "\\"
        or line.startswith(("    -", "  gpuward ", "  kubectl "))
        or bool(re.search(r":  +\S", line))
    )


class CommandParser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` whose errors are printable: they quote what was given.

    Help is as wide as the terminal.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{**keywords, "formatter_class": _HelpFormatter})

    def error(self, message: str) -> NoReturn:
        """Write the usage and `message` to standard error, and exit with status 2."""
        super().error(printable(message))
