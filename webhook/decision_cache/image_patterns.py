"""Which images exceptions, and rules about every image, tell apart."""

from __future__ import annotations

from rules.base.caching import BoundedCache
from rules.engine.rule_set import RuleSet
from rules.engine.trait_names import RULES_ABOUT_EVERY_IMAGE
from rules.profile.profile import union

# More take longer to compare with a new image than its pod takes to be evaluated.
_MAX_PATTERNS = 100
_EVERY_IMAGE = ("*",)


class ImagePatterns(BoundedCache[str, tuple[str, ...]]):
    """For a namespace, the patterns of images that decisions by `rules` may depend on.

    An ordinary image that fits none of them is as good as any other that fits none.
    """

    def __init__(self, rules: RuleSet) -> None:
        super().__init__()
        self._rules = rules
        names = {active.rule.name for active in rules.rules}
        self._tells_all_apart = not RULES_ABOUT_EVERY_IMAGE.isdisjoint(names)

    def __missing__(self, namespace: str) -> tuple[str, ...]:
        """The patterns for a new `namespace`."""
        patterns = union(e.images for e in self._rules.exceptions_in(namespace))
        if self._tells_all_apart or len(patterns) > _MAX_PATTERNS:
            patterns = _EVERY_IMAGE
        return self.store(namespace, patterns)
