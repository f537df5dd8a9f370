"""Elements of an HTML page, whose texts ElementTree escapes."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement

from terminal import printable


def add(parent: Element, tag: str, text: str = "", css: str = "", **attributes: str) -> Element:
    """A new element of the class `css` at the end of `parent`."""
    attributes = {name.replace("_", "-"): value for name, value in attributes.items()}
    made = SubElement(parent, tag, {"class": css} if css else {}, **attributes)
    made.text = printable(text)
    return made
