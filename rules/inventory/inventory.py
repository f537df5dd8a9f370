"""A frozen value: what is known about other objects, such as the manifests of the same run.

"Inventory" is Gatekeeper's word for the objects to which policies may refer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from rules.base.caching import BoundedCache

A = TypeVar("A")
R = TypeVar("R")

Records: TypeAlias = Mapping[type, Mapping[str, Mapping[str, Any]]]
"""Records by kind (a class of `records`), namespace and name. Cluster-wide ones have no namespace.

A record is None if the object was given with different contents: nobody knows which one counts.
"""
MOST_IN_A_NAMESPACE = 50
"""Objects of a kind in a namespace, of which a rule reads all for every pod."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Inventory:
    """Records of objects by kind, namespace and name. It is false if it has none.

    `unnamed` stands for the namespace of objects that name none, and whose namespace is therefore
    not known: the folder that they are in, for example.
    """

    __slots__ = ("_derived", "_records", "_unnamed")

    def __init__(self, records: Records = MappingProxyType({}), unnamed: str = "") -> None:
        self._records = records
        self._unnamed = unnamed
        self._derived: BoundedCache[tuple[Any, Any], Any] = BoundedCache()

    @property
    def records(self) -> Records:
        """Everything that is known."""
        return self._records

    def __bool__(self) -> bool:
        return bool(self._records)

    def __len__(self) -> int:
        return sum(len(names) for homes in self._records.values() for names in homes.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inventory):
            return NotImplemented
        return (self._records, self._unnamed) == (other._records, other._unnamed)

    __hash__ = None  # type: ignore[assignment]  # its records cannot be hashed

    def seen_from(self, unnamed: str) -> Inventory:
        """The same for an evaluation in which `unnamed` stands for the namespace not named."""
        seen = Inventory(self._records, unnamed)
        seen._derived = self._derived
        return seen

    def once(self, derive: Callable[[Inventory, A], R], argument: A) -> R:
        """`derive(self, argument)`, computed once for all evaluations that share the records.

        `derive` reads objects of the cluster alone, so that all of them see the same.
        """
        key = derive, argument
        found: R
        try:
            found = self._derived[key]
        except KeyError:
            found = self._derived.store(key, derive(self, argument))
        return found

    def find(self, kind: type[R], name: str, namespace: str | None = None) -> R | None:
        """The record of an object, such as `find(ConfigMap, "gpus", "team")`; None if unknown.

        An object of the cluster has the namespace None; an object that names none has an empty one.
        """
        found: R | None = self._in(kind, namespace).get(name)
        return found

    def all_in(self, kind: type[R], namespace: str | None) -> Mapping[str, R]:
        """The records of all objects of a kind in `namespace`, or of the cluster if None, by name.

        None at all if the inventory `lacks_some`.
        """
        return _NOTHING if self.lacks_some(kind, namespace) else self._in(kind, namespace)

    def lacks_some(self, kind: type, namespace: str | None) -> bool:
        """Whether the content of an object is not known, or there are more than a rule can read.

        Tenants choose how many there are in a namespace, and not how many the cluster has.
        """
        found = self._in(kind, namespace)
        too_many = namespace is not None and len(found) > MOST_IN_A_NAMESPACE
        return too_many or None in found.values()

    def _in(self, kind: type, namespace: str | None) -> Mapping[str, Any]:
        home = "" if namespace is None else namespace or self._unnamed
        found: Mapping[str, Any] = self._records.get(kind, _NOTHING).get(home, _NOTHING)
        return found


EMPTY = Inventory()
