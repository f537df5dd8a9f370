"""PyYAML's parser in Python, behind the interface of libyaml's, for where libyaml is not."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.scanner import Scanner, ScannerError

BYTE_ORDER_MARK = "\ufeff"
_SURROGATES = range(0xD800, 0xE000)


class PythonParser(Reader, Scanner, Parser):
    """Gives the events of a text as `yaml.cyaml.CParser` does: docs/decisions/0071.

    Raises one of `kubeyaml.events.PARSER_ERRORS` if the text is no YAML. The words of an error may
    differ from those of libyaml.
    """

    def __init__(self, text: str) -> None:
        text.encode()  # raises as libyaml's parser does
        try:
            Reader.__init__(self, text)
        except ReaderError as problem:
            # libyaml counts bytes.
            problem.position = len(text[: problem.position].encode())
            problem.reason = "control characters are not allowed"
            raise
        Scanner.__init__(self)
        Parser.__init__(self)

    def scan_to_next_token(self) -> None:
        """Move to the next token, as libyaml also behind tabs that do not indent it."""
        while True:
            super().scan_to_next_token()
            if self.column == 0 and self.peek() == BYTE_ORDER_MARK:
                self.forward()
                self.column += 1
            elif self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
                self.forward()
            else:
                return

    def scan_plain(self) -> Any:
        """Read a text without quotes."""
        token = super().scan_plain()
        if self.flow_level and self.peek() == ":" and self.peek(1) in ",[]{}":
            what = "while scanning a plain scalar"
            raise ScannerError(what, token.start_mark, "found unexpected ':'", self.get_mark())
        return token

    def scan_plain_spaces(self, indent: Any, start_mark: Any) -> Any:
        """Move behind the spaces in a text without quotes; return what they stand for."""
        length = 0
        while self.peek(length) in " \t":
            length += 1
        spaces = self.prefix(length)
        if "\t" not in spaces:
            return super().scan_plain_spaces(indent, start_mark)
        self.forward(length)
        if self.peek() in "\r\n\x85\u2028\u2029":
            return super().scan_plain_spaces(indent, start_mark)
        return [spaces]

    def scan_block_scalar_indicators(self, _start_mark: Any) -> tuple[bool | None, int | None]:
        """Read how a block of text ends and is indented; a tab or a comment may follow at once."""
        chomping, increment = None, None
        while True:
            character = self.peek()
            if chomping is None and character in "+-":
                chomping = character == "+"
            elif increment is None and character in "123456789":
                increment = int(character)
            else:
                return chomping, increment
            self.forward()

    def scan_block_scalar_ignored_line(self, start_mark: Any) -> None:
        """Move behind spaces, tabs and a comment to the next line."""
        while self.peek() in " \t":
            self.forward()
        super().scan_block_scalar_ignored_line(start_mark)

    def get_event(self) -> Any:
        """The next event."""
        try:
            event: Any = super().get_event()  # type: ignore[no-untyped-call]
        except (ValueError, OverflowError) as problem:  # of chr()
            raise _no_character(self.get_mark()) from problem
        if type(event) is yaml.ScalarEvent:
            if event.style is None:
                event.style = ""
            elif event.style == '"' and any(ord(c) in _SURROGATES for c in event.value):
                raise _no_character(event.start_mark)
        return event


def _no_character(where: Any) -> ScannerError:
    what = "found invalid Unicode character escape code"
    return ScannerError("while parsing a quoted scalar", None, what, where)
