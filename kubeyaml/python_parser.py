"""PyYAML's own parser in the place of libyaml's, where there is no extension: in a browser."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner


class PythonParser(Reader, Scanner, Parser):
    """Gives the events that `CParser` gives, more slowly."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)

    def scan_to_next_token(self) -> None:
        """Skip tabs too where libyaml does: behind the indentation of a line."""
        super().scan_to_next_token()
        while (self.flow_level or not self.allow_simple_key) and self.peek() == "\t":
            self.forward()
            super().scan_to_next_token()

    def get_event(self) -> Any:
        """Return the next event; a plain scalar has the style that libyaml gives it."""
        event: Any = super().get_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.ScalarEvent) and event.style is None:
            event.style = ""
        return event
