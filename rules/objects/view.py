"""Read-only views, through which rules read objects, and what is computed of a view once.

A view shows one version of a manifest. After an edit there are new views; a view whose data no edit
has touched shows the new manifest as well, and stays. So what is stored with a view never has to be
forgotten.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from rules.base.caching import cached_property
from rules.base.json_values import Json

T = TypeVar("T")


class View:
    """A view of a part of a manifest."""

    _computed: ClassVar[frozenset[str]] = frozenset({"facts"})

    def __init_subclass__(cls) -> None:
        own = {name for name, value in vars(cls).items() if isinstance(value, cached_property)}
        cls._computed |= own

    @cached_property
    def facts(self) -> dict[Callable[..., Any], Any]:
        """The results of functions that are decorated with `once_per_view`."""
        return {}

    def _copy(self) -> Self:
        """Return a view of the same object, without anything that was computed of its data."""
        copy = object.__new__(type(self))
        given = copy.__dict__
        given.update(self.__dict__)
        for name in self._computed.intersection(given):
            del given[name]
        return copy


V = TypeVar("V", bound=View)  # not "View": the first text that is compiled takes a millisecond
Views: TypeAlias = dict[int, "SubjectView"]
"""The views of a manifest, by the `id` of the views of the version before."""


class SubjectView(View):
    """A view of an object, or of a pod in one, that rules check."""

    @cached_property
    def results_by_rule(self) -> dict[str, Any]:
        """Return the result of each rule for this view, filled by `engine.evaluation`."""
        return {}

    def in_manifest(self, manifest: Json, views: Views) -> Self:
        """Return the view of the same object in `manifest`, which edits have made of its version.

        It is this view itself if no edit has touched the object. `views` are those of `manifest`
        that were made before, and it is added to them.
        """
        view = views.get(id(self))
        if view is None:
            view = views[id(self)] = self._in_manifest(manifest)
        return view  # type: ignore[return-value]  # it replaces this view

    def _in_manifest(self, manifest: Json) -> Self:
        # Each kind of view has its own. With `abc`, every `isinstance` of a view would take longer.
        raise NotImplementedError


def once_per_view(compute: Callable[[V], T]) -> Callable[[V], T]:
    """Decorate a pure function of one view: its result is stored with the view.

    To store a result that is known already: `view.facts[function] = result`.
    """

    @wraps(compute)
    def function(view: V) -> T:
        facts = view.facts
        if function in facts:  # an exception would take longer
            known: T = facts[function]
        else:
            known = facts[function] = compute(view)
        return known

    return function
