"""The events of libyaml, corrected where it reads a text in another way than kubectl's parser."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import yaml

from kubeyaml.escapes import mark_quotes, unmark
from kubeyaml.model import LimitError, YamlError

NextEvent: TypeAlias = Callable[[], Any]
"""Returns the next event of a text; raises one of PARSER_ERRORS if the text is no YAML."""
PARSER_ERRORS: Final = (yaml.YAMLError, ValueError)
_MAX_TAG_DIRECTIVES: Final = 100


def events_of(text: str, base: int) -> NextEvent:
    """The events of `text`, whose offset in the file is `base`, one after the other."""
    # libyaml compares each of these directives with all directives before it.
    if "%" in text and text.count("%TAG") > _MAX_TAG_DIRECTIVES:
        raise LimitError(f"more than {_MAX_TAG_DIRECTIVES} %TAG directives", base)
    marker, marked = mark_quotes(text)
    # The stubs do not export the parser alone.
    next_event: NextEvent = yaml.cyaml.CParser(marked).get_event  # type: ignore[attr-defined]
    if marker:
        next_event = _unmarked(next_event, marker)
    return _without_question_marks(next_event, base) if "?" in text else next_event


def _unmarked(next_event: NextEvent, marker: str) -> NextEvent:
    def unmarked() -> Any:
        event = next_event()
        return unmark(event, marker) if isinstance(event, yaml.ScalarEvent) else event

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


def explain(problem: Exception, event: Any, text: str, base: int) -> YamlError:
    """Why `text` is refused, and where: at the last `event`, if the problem does not say."""
    index = event.start_mark.index if event else 0
    message = str(problem)
    if isinstance(problem, yaml.MarkedYAMLError):
        message = ", ".join(filter(None, (problem.context, problem.problem)))
        mark = problem.problem_mark or problem.context_mark
        index = mark.index if mark else index
    elif isinstance(problem, yaml.reader.ReaderError):
        message = problem.reason
        index = len(text.encode()[: problem.position].decode(errors="ignore"))
    elif isinstance(problem, UnicodeEncodeError):
        message = "half of a surrogate pair is not a character"
        index = problem.start
    return YamlError(message, min(index, len(text)) + base)
