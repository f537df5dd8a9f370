"""One HTML page for people. It loads nothing and needs no script; with one, it can be filtered."""

from reports.formats.html import write

__all__ = ["write"]
