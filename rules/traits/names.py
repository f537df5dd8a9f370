"""Which annotations, labels and variables rules may read.

All others have no influence on what rules find, whatever their values.
"""

from __future__ import annotations

from collections.abc import Callable

from rules.base.caching import BoundedCache
from rules.objects.pod import MIRROR
from rules.profile.profile import Profile
from rules.traits.extraction import key_traits
from rules.traits.variables import traits_of_variable

# Keys that rules read although nothing in them says so.
_OTHER_KEYS = (MIRROR, "app.kubernetes.io/managed-by", "hami.io/webhook")
# The same of variables.
_OTHER_VARIABLES = ("TF_FORCE_UNIFIED_MEMORY", "CUDF_PANDAS_RMM_MODE")


class NameTable(BoundedCache[str, bool]):
    """Whether rules may read something, by its name."""

    def __init__(self, may_be_read: Callable[[str], bool]) -> None:
        super().__init__()
        self._may_be_read = may_be_read

    def __missing__(self, name: str) -> bool:
        """The answer for a new `name`."""
        return self.store(name, self._may_be_read(name))


def read_keys(profile: Profile) -> NameTable:
    """The keys of annotations and labels that rules may read with `profile`."""
    fractions = profile.fractions
    optional = (key for f in fractions for key in (f.target, f.portion, f.memory, f.cards))
    known = frozenset(
        (
            *_OTHER_KEYS,
            *profile.request_annotations,
            *(key for key in optional if key),
            *(reference.annotation for reference in profile.injected_references),
        )
    )
    return NameTable(lambda key: key in known or bool(key_traits(key)))


def read_variables(profile: Profile) -> NameTable:
    """The variables whose values rules may read with `profile`.

    Rules may also read every variable to which `$(NAME)` in another text refers.
    """
    known = frozenset(_OTHER_VARIABLES)
    return NameTable(lambda name: name in known or bool(traits_of_variable(name, profile)))
