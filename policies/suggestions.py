"""Suggest a known word for a misspelled one."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], fallback: str = "") -> str:
    """Return `did you mean "…"?` with the word of `known` that is most similar to `word`.

    Returns `fallback` if none is similar.
    """
    import difflib  # noqa: PLC0415  # import it only for a misspelled word

    close = difflib.get_close_matches(word, list(known), n=1)
    return f'did you mean "{close[0]}"?' if close else fallback
