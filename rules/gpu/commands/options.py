"""The words of a command line as programs in Go read them: options, their values, and others.

Most such programs use the package https://pkg.go.dev/github.com/spf13/pflag.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple


class Argument(NamedTuple):
    """An option with its value, or another word, which has no `name`.

    `first` and `last` are the indices of its words.
    """

    name: str
    value: str
    first: int
    last: int


class CommandLine:
    """The options that a program knows.

    - `flags`: those that take no word, such as `--rm`; `letters`: such as `i` and `t` in `-it`.
    - `never_values`: options that are no value of another, whatever stands before them. What takes
      no word may be newer than `flags`.
    """

    def __init__(
        self, flags: frozenset[str], letters: str, never_values: frozenset[str] = frozenset()
    ) -> None:
        self._flags = flags
        self._letters = letters
        self._never_values = never_values

    def read(self, words: Sequence[str], start: int) -> Iterator[Argument]:
        """Yield the options and the other words from `start` on, up to a double dash."""
        position = start
        while position < len(words) and words[position] != "--":
            first, word = position, words[position]
            position += 1
            if not word.startswith("-") or word == "-":
                yield Argument("", word, first, first)
                continue
            name, equals, value = word.partition("=")
            if short := self._short_option.fullmatch(word):
                name, equals, value = f"-{short[1]}", short[2], short[2]
            is_alone = equals or name in self._flags or self._cluster.fullmatch(name)
            if not is_alone and not self._is_option(words, position):
                value = words[position] if position < len(words) else ""
                position += 1
            yield Argument(name, value, first, min(position, len(words)) - 1)

    def _is_option(self, words: Sequence[str], position: int) -> bool:
        return any(
            word.partition("=")[0] in self._never_values for word in words[position : position + 1]
        )

    @cached_property
    def _short_option(self) -> re.Pattern[str]:
        """An option of one letter, perhaps behind others and before its value: `-itv/a:/b`."""
        return re.compile(rf"-[{self._letters}]*([^-={self._letters}])=?(.*)", re.DOTALL)

    @cached_property
    def _cluster(self) -> re.Pattern[str]:
        return re.compile(rf"-[{self._letters}]+")
