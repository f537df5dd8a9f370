"""The events of libyaml, corrected where it reads a text in another way than kubectl's parser."""

import re
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import yaml

from kubeyaml.model import LimitError, YamlError

if sys.platform == "emscripten":  # in a browser, for which PyYAML publishes no libyaml
    from kubeyaml.python_parser import PythonParser as EventParser
else:
    from yaml.cyaml import CParser as EventParser  # type: ignore[attr-defined]  # not in the stubs

# The escape `\'` in double quotes, which kubectl's parser reads and libyaml refuses. A character
# that the text does not have takes the place of the backslash, so that every offset stays the same,
# and is taken out of the values again.

# In a run of backslashes, each pair is one escaped backslash.
_ESCAPES_PATTERN: Final = r"\\\\|(\\)'"
# Of the characters that Unicode leaves to private use.
_MARKER_CANDIDATES: Final = range(0xE000, 0xE040)


def mark_escaped_quotes(text: str) -> tuple[str, str]:
    r"""A character that is not in `text`, and `text` with it in place of the backslash of `\'`.

    The character is empty if the text has no such escape, and if no character is free: libyaml
    then refuses the text.
    """
    marker = _unused_character(text) if "\\'" in text else ""
    if not marker:
        return "", text
    return marker, re.sub(
        _ESCAPES_PATTERN, lambda match: f"{marker}'" if match[1] else match[0], text
    )


def _unused_character(text: str) -> str:
    # An escape such as `\ue000` would bring the character into a value.
    present, lower = set(text), text.lower()
    free = (c for c in _MARKER_CANDIDATES if chr(c) not in present and f"{c:x}" not in lower)
    return next(map(chr, free), "")


def unmark_scalar(event: Any, marker: str) -> Any:
    """The scalar `event` with the value that it has in the text as written."""
    if marker in event.value:
        event.value = event.value.replace(marker, "" if event.style == '"' else "\\")
    return event


NextEvent: TypeAlias = Callable[[], Any]
"""Returns the next event of a text; raises one of PARSER_ERRORS if the text is no YAML."""
PARSER_ERRORS: Final = (yaml.YAMLError, ValueError)
_MAX_TAG_DIRECTIVES: Final = 100


def events_of(text: str, base: int) -> NextEvent:
    """The events of `text`, whose offset in the file is `base`, one after the other."""
    # libyaml compares each of these directives with all directives before it.
    if "%" in text and text.count("%TAG") > _MAX_TAG_DIRECTIVES:
        raise LimitError(f"more than {_MAX_TAG_DIRECTIVES} %TAG directives", base)
    marker, marked = mark_escaped_quotes(text)
    next_event: NextEvent = EventParser(marked).get_event
    if marker:
        next_event = _unmarked(next_event, marker)
    return _without_question_marks(next_event, base) if "?" in text else next_event


def _unmarked(next_event: NextEvent, marker: str) -> NextEvent:
    def unmarked() -> Any:
        event = next_event()
        return unmark_scalar(event, marker) if isinstance(event, yaml.ScalarEvent) else event

    return unmarked


def _without_question_marks(next_event: NextEvent, base: int) -> NextEvent:
    styles: list[str] = []  # of the open collections

    def checked() -> Any:
        event: Any = next_event()
        if isinstance(event, yaml.CollectionStartEvent):
            styles.append("flow" if event.flow_style else "block")
        elif isinstance(event, yaml.CollectionEndEvent):
            styles.pop()
        elif isinstance(event, yaml.ScalarEvent) and styles[-1:] == ["flow"] and not event.style:
            _refuse_question_mark(event, base)
        return event

    return checked


def _refuse_question_mark(event: Any, base: int) -> None:
    if "?" in event.value:
        message = "inside brackets, kubectl accepts a ? only in quotes"
        raise YamlError(message, event.start_mark.index + base)


def explain_error(problem: Exception, event: Any, text: str, base: int) -> YamlError:
    """Return why `text` is refused, and where: at the last `event`, if the problem does not say."""
    index = event.start_mark.index if event else 0
    message = str(problem)
    if isinstance(problem, yaml.MarkedYAMLError):
        message = ", ".join(filter(None, (problem.context, problem.problem)))
        mark = problem.problem_mark or problem.context_mark
        index = mark.index if mark else index
        if isinstance(problem, yaml.scanner.ScannerError):
            message = _explain_character(text[index : index + 1], problem) or message
    elif isinstance(problem, yaml.reader.ReaderError):
        message = problem.reason
        index = len(text.encode()[: problem.position].decode(errors="ignore"))
    elif isinstance(problem, UnicodeEncodeError):
        message = "half of a surrogate pair is not a character"
        index = problem.start
    return YamlError(message, min(index, len(text)) + base)


def _explain_character(character: str, problem: yaml.scanner.ScannerError) -> str:
    """Say what to write in place of a character that YAML does not allow here; empty for others."""
    starts_nothing = str(problem.problem).endswith("cannot start any token")
    if character == "\t" and (starts_nothing or "tab" in str(problem.problem)):
        return "a tab, where YAML allows only spaces: indent by spaces"
    if character and starts_nothing:
        return f"a value cannot begin with {character}: quote it"
    return ""


# The spans of scalars whose marks libyaml sets wrong. Offsets count from the text's start.

_COLON_PATTERN: Final = re.compile(r"(?:\s|(?<=\s)#.*)*+:")
_KEEP_BREAKS_PATTERN: Final = re.compile(r"(?:[!&]\S*|\s|#.*)*+[|>][0-9]*\+")
_LINE_BREAKS: Final = "\r\n\x85\u2028\u2029"


def empty_value_start(text: str, start: int, key_end: int) -> int:
    """Return where an empty value is, whose key ends at `key_end` if it has one.

    In flow style, and after `? key`, libyaml reports the start of the next token instead.
    """
    in_place = start > key_end and text[start - 1] == ":"
    if in_place or key_end < 0:
        return start
    colon = _COLON_PATTERN.match(text, key_end)
    return colon.end() if colon else key_end


def block_scalar_end(text: str, start: int, end: int) -> int:
    """Return the end of a block scalar; libyaml reports the end of the blank lines after it."""
    body = text[start:end]
    if _KEEP_BREAKS_PATTERN.match(body):
        return start + len(body.removesuffix("\n").removesuffix("\r"))
    return start + len(body.rstrip(_LINE_BREAKS))
