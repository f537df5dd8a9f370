"""The values of options that let a rule find less.

For each option it is known here whether a longer list, or a larger number, makes the rule find
less, or more. An option that is not here, and a change in both directions, may let it find less.
Those of `missing-queue` are not here: a namespace that the option chooses asks for other things of
a workload than one that it does not choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.text_matching import matches

_MAX_COMPARISONS = 1_000_000
"""Longer lists are not compared: it would take more than a second or two."""


class ChangedOption(NamedTuple):
    """An option whose new value may let its rule find less."""

    name: str
    old: Any
    new: Any


def loosened_options(
    rule: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[ChangedOption]:
    """Yield the options of `rule` by which it may find less with `new` than with `old`."""
    if rule == "untrusted-gpu-image" and _asks_for_digest_alone(old, new):
        return
    if rule == "gpu-namespace":
        if not (old["namespaces"] or old["labels"]):
            return  # it found nothing
        if not (new["namespaces"] or new["labels"]):
            yield ChangedOption("namespaces", old["namespaces"], new["namespaces"])
            return
    for name in old:
        before, after = _value(old[name]), _value(new[name])
        order = _ORDERS.get((rule, name))
        if before != after and not (order and order(before, after)):
            yield ChangedOption(name, before, after)


def _asks_for_digest_alone(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether the old policy trusted every repository, and both ask for digests, or none."""
    return not old["repositories"] and (new["require_digest"] or not old["require_digest"])


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _matched(patterns: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Return whether each of `others` matches only what one of `patterns` matches."""
    if len(patterns) * len(others) > _MAX_COMPARISONS:
        return False
    joker = unused_character((*patterns, *others))
    return all(
        any(matches(pattern, other.replace("*", joker)) for pattern in patterns) for other in others
    )


def unused_character(texts: Iterable[str]) -> str:
    """Return a character that none of `texts` has.

    A pattern that matches another one, whose `*` are this character, matches all that it does.
    """
    used = {character for text in texts for character in text}
    return next(c for c in map(chr, range(0xE000, 0x110000)) if c not in used)


def _excuses_no_more(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    return _matched(old, new)


def _names_no_less(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    return _matched(new, old)


def _excuses_no_more_if_set(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Of lists which, while they are empty, leave it to the rule."""
    return bool(old and new) and _matched(old, new)


def _trusts_no_more(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Of repositories: each means what is below it too. An empty list trusts all."""
    if not old:
        return True
    with_folders = tuple(p for one in old for p in (one.rstrip("/"), f"{one.rstrip('/')}/*"))
    return bool(new) and _matched(with_folders, tuple(one.rstrip("/") for one in new))


def _is_no_larger(old: float, new: float) -> bool:
    return new <= old


def _is_no_smaller(old: float, new: float) -> bool:
    return new >= old


_ORDERS: Mapping[tuple[str, str], Callable[[Any, Any], bool]] = {
    ("image-default-all", "every_container"): _is_no_smaller,
    ("legacy-cuda-version", "every_container"): _is_no_smaller,
    ("left-queue", "controllers"): _excuses_no_more_if_set,
    ("device-injector-annotation", "node_devices"): _is_no_smaller,
    ("reserved-gpushare-keys", "writers"): _excuses_no_more_if_set,
    ("reserved-priority-class", "reserved"): _names_no_less,
    ("untrusted-gpu-image", "repositories"): _trusts_no_more,
    ("untrusted-gpu-image", "require_digest"): _is_no_smaller,
    ("visible-devices-key", "writers"): _excuses_no_more,
    ("absurd-count", "max_devices"): _is_no_larger,
    ("gpu-namespace", "namespaces"): _excuses_no_more,
    ("gpu-namespace", "labels"): _excuses_no_more,
    ("gpu-share-namespace", "namespaces"): _excuses_no_more,
    ("gpu-share-namespace", "labels"): _excuses_no_more,
    ("claim-of-all-devices", "max_devices"): _is_no_larger,
}
