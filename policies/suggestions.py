"""The word that somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean "…"?` with the word nearest to `word`, or `otherwise` if none is near."""
    import difflib  # noqa: PLC0415  # only mistakes need it

    close = difflib.get_close_matches(word, list(known), n=1)
    return f'did you mean "{close[0]}"?' if close else otherwise
