"""Extract the traits that a container has because of the names of its variables."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from rules.base.json_access import as_objects, as_text
from rules.base.traits import GPU_VARIABLE, LD_PREFIX, LD_VARIABLE, VARIABLE_WORDS
from rules.base.words import matches_any
from rules.profile.profile import Profile

_NAME = itemgetter("name")


def variable_traits(env: Any, profile: Profile) -> int:
    """The traits of a container with the list `env`."""
    names, traits = _variable_names(env), 0
    found = set(map(profile.variable_traits.get, names))
    if None in found:  # some of the names were not met before
        found = {traits_of_variable(name, profile) for name in names}
    for traits_of_one in found:
        traits |= traits_of_one or 0
    return traits


def _variable_names(env: Any) -> set[str]:
    """The names in `env`; in the usual case at a tenth of what it costs to look at each entry."""
    try:
        return set(map(_NAME, env or ()))
    except (LookupError, TypeError):  # not all are entries with a name
        return {as_text(entry.get("name")) for _, entry in as_objects(env)}


def traits_of_variable(name: Any, profile: Profile) -> int:
    """The traits of a container that sets the variable `name`."""
    name = as_text(name)
    traits = LD_VARIABLE if name.startswith(LD_PREFIX) else 0
    has_gpu_word = any(word in name for word in VARIABLE_WORDS)
    is_known = profile.visible_variable(name) is not None
    if has_gpu_word or is_known or matches_any(profile.alternative_variables, name):
        traits |= GPU_VARIABLE
    return profile.variable_traits.store(name, traits)
