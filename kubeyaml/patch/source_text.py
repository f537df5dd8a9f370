"""The text of one document with its lines, and what of it must not be edited."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kubeyaml.model import Document, Path, Place
from kubeyaml.patch.model import PatchError, Splice
from kubeyaml.reader import BYTE_ORDER_MARK


class SourceText:
    r"""The text of a document, which is `text` from `start` to `end`. Only "\n" ends a line.

    Offsets count from the start of `text`.
    """

    def __init__(self, text: str, start: int = 0, end: int | None = None) -> None:
        self.text = text
        self.start = start
        self.end = len(text) if end is None else end
        first_line = text[start : text.find("\n", start) + 1]
        # With mixed line breaks, new lines end like the first one.
        self.line_break = "\r\n" if first_line.endswith("\r\n") else "\n"
        self._first_column = start + text.startswith(BYTE_ORDER_MARK, start)

    def text_between(self, start: int, end: int) -> str:
        """The text between two offsets."""
        return self.text[start:end]

    def line_start(self, offset: int) -> int:
        """The start of the line of the character at `offset`."""
        return max(self.text.rfind("\n", 0, offset) + 1, self._first_column)

    def line_end(self, offset: int) -> int:
        """The offset behind the line break of the line of `offset`, or the end of the text."""
        return (self.text.find("\n", offset) + 1) or len(self.text)

    def column(self, offset: int) -> int:
        """Return how many characters are before `offset` on its line."""
        return offset - self.line_start(offset)

    def rest_of_line(self, offset: int) -> str:
        """Return the text after `offset` on its line, without blanks around it."""
        return self.text_between(offset, self.line_end(offset)).strip()

    def splice_inserting_lines(self, offset: int, lines: Iterable[str]) -> Splice:
        """The splice that puts `lines` below the line of `offset`."""
        end = self.line_end(offset)
        new = "".join(line + self.line_break for line in lines)
        if self.text_between(offset, end).endswith("\n"):
            return Splice(end, end, new)
        # The last line stays without a line break.
        return Splice(end, end, self.line_break + new.removesuffix(self.line_break))

    def end_of_comments_below(self, offset: int, column: int) -> int:
        """The end of the last comment below the line of `offset` that is indented beyond `column`.

        It is on a line of its own, after other such comments and blank lines alone. `offset` itself
        if there is none.
        """
        end, start = offset, self.line_end(offset)
        while start < self.end:
            stop = self.line_end(start)
            text = self.text_between(start, stop).rstrip()
            content = text.lstrip(" ")
            if content and not (content.startswith("#") and len(text) - len(content) > column):
                break
            if content:
                end = start + len(text)
            start = stop
        return end

    def splice_removing_lines(self, start: int, offset: int, before: Place | None) -> Splice:
        """The splice that removes the lines from `start`, where one begins, to that of `offset`.

        `before` is the entry that ends before `start`, if there is one.
        """
        end = self.line_end(offset)
        is_last = self.text_between(end - 1, end) != "\n" and start > self.start
        if is_last and not (before and _ends_in_block_scalar(before)):
            # The line before becomes the last one, and stays without a line break.
            start -= 2 if self.text_between(start - 2, start) == "\r\n" else 1
        return Splice(start, end)

    def with_splices(self, splices: Iterable[Splice]) -> str:
        """The text of the document with all `splices` made; they must not overlap."""
        pieces, done = [], self.start
        for start, end, new in sorted(splices, key=lambda splice: splice[:2]):
            pieces += [self.text[done:start], new]
            done = end
        return "".join((*pieces, self.text[done : self.end]))


def ends_in_block_scalar(source: SourceText, place: Place) -> bool:
    """Return whether the text ends in a block scalar that an added line break would change."""
    return source.text_between(source.end - 1, source.end) != "\n" and _ends_in_block_scalar(place)


def _ends_in_block_scalar(place: Place) -> bool:
    """Return whether the last value at `place` is a block scalar, which includes its line break."""
    while place.inside:
        inside = place.inside
        place = max(inside.values() if isinstance(inside, dict) else inside, key=lambda p: p.end)
    return place.style in {"literal", "folded"}


# What decides in templates which lines there are, and what they say. Many tools put it into YAML
# comments, so that the text stays YAML.
_DIRECTIVE_PATTERN: Final = re.compile(
    # Go's templates, and Handlebars' blocks
    r"\{\{[-~]?\s*(?:(?:if|else|end|range|with|define|block|include|template)\b|[#/^])"
    r"|\[\[-?\s*(?:if|else|end|range|with|define|block|include|template)\b"  # other delimiters
    r"|\{%"  # Jinja
    r"|<%"  # ERB
    r"|%\{[-~]?\s*(?:if|else|for|end)"  # Terraform
    r"|(?:^|\s)#@(?=[\s\w/]|$)|\(@[-=\s]"  # ytt
    r"|^[ \t]*#[ \t]*(?:ifdef|ifndef|endif)\b"  # the C preprocessor
    r"|^[ \t]*#[^\w\s#-]+[ \t]*(?:if|elif|else|endif|end|for|endfor)\b",  # tools with own signs
    re.MULTILINE,
)
# What a template fills in: `{{ .x }}`, `${X:=1}`, `$X`, `((x))`, `#{x}#`, `{x}`, `[[ .x ]]`, `<x>`,
# and a name between signs such as `__X__` and `%X%`; what is a secret elsewhere, as SOPS, vals, and
# the plugins of Vault write it; and words for whoever copies the file. Text in the form `$(X)` is
# not: the kubelet fills it in.
_PLACEHOLDER_PATTERN: Final = re.compile(
    r"\{\{|[#$%]\{|\$[A-Za-z_]|\(\(|\{[A-Za-z_][\w.-]*\}|\[\[ ?\.|<[A-Za-z][\w .:/#|-]*>"
    r"|__[A-Za-z][\w.-]*__|(?<!\w)([#%@~^!|+=]{1,2})[A-Z][A-Z0-9_.-]*\1(?!\w)"
    r"|\bENC\[|\bref\+[a-z0-9]+://|\bvault:"
    r"|\b(?i:(?:replace|change|fill|insert)[_-]?(?:me|this|here)|placeholder|your[_-]\w+)\b"
)
_MAX_QUOTED_CHARACTERS: Final = 40  # of a directive, in a reason
_COMMENT_PATTERN: Final = re.compile(r"\s#")
_REFUSAL_BY_NOTE: Final = {
    "alias": "an alias stands for the value, and a change at its anchor would change other places",
    "merge": "a merge key (<<) supplies the value, and a change there would change other places",
    "anchor": "the value has an anchor, and a change would also change its aliases",
    "tag": "the value has a tag",
}


def refuse_template_directives(source: SourceText) -> None:
    """Refuse the text of a template with directives: the edit might be inside one, or next to it.

    Directives are conditions, loops and the like, also of tools that keep them in comments.
    """
    found = _DIRECTIVE_PATTERN.search(source.text, source.start, source.end)
    if found:
        line = source.text_between(found.start(), source.line_end(found.end())).strip()
        directive = line.splitlines()[0][:_MAX_QUOTED_CHARACTERS]
        raise PatchError(f"the file is a template: it has `{directive}`")


def place_at(document: Document, path: Path) -> Place:
    """The place of the value at `path`, if nothing on the way forbids an edit there."""
    place = document.place
    refuse_noted_value(place)
    for step in path:
        inside: Any = place.inside
        place = inside[step]
        refuse_noted_value(place)
    return place


def refuse_noted_value(place: Place) -> None:
    """Refuse an edit of a value that stands for others, or whose text says more than its value."""
    if place.note:
        raise PatchError(_REFUSAL_BY_NOTE[place.note])


def refuse_anchors_inside(place: Place) -> None:
    """Refuse to remove a value with an anchor inside, for which aliases may stand elsewhere."""
    for inner in _descendants(place):
        if inner.note == "anchor":
            raise PatchError(_REFUSAL_BY_NOTE["anchor"])


def refuse_comments_inside(source: SourceText, place: Place) -> None:
    """Refuse to replace a collection if something in it may be a comment."""
    if place.inside and _COMMENT_PATTERN.search(
        source.text_between(place.start, source.line_end(place.end))
    ):
        raise PatchError("the value to replace contains comments")


def refuse_placeholders(source: SourceText, splices: Iterable[Splice]) -> None:
    """Refuse to change text that a template fills in."""
    for start, end, _ in splices:
        if _PLACEHOLDER_PATTERN.search(source.text_between(start, end)):
            raise PatchError("a template fills in this text")


def _descendants(place: Place) -> Iterator[Place]:
    waiting = [place]
    for current in waiting:
        yield current
        if current.note not in {"alias", "merge"}:
            inside = current.inside
            waiting += inside.values() if isinstance(inside, dict) else inside or ()
