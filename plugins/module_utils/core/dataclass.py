# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The standard `dataclass` decorator at a fifth of its cost, for what nodes import in every task.

`dataclasses.dataclass` compiles up to eight methods for each class, which takes about 1 ms: 40 % of
the start of a module that imports 100 classes. Here `__init__` alone is compiled; `__eq__`,
`__hash__` and `__repr__` read the fields. mypy enforces `frozen`; at run time nothing does, so a
frozen class of the standard decorator cannot inherit from one of this.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Callable, Optional

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # the same to a type checker
else:

    def dataclass(cls: Optional[type] = None, *, frozen: bool = False):
        """Decorate as `@dataclass` or `@dataclass(frozen=True)`."""
        if cls is None:
            return lambda decorated: dataclass(decorated, frozen=frozen)
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # dataclasses would write the signature: a third of its time
        own = vars(cls)
        hashed_by_itself = own.get("__hash__") is not None
        dataclasses.dataclass(eq=False, repr=False)(cls)
        fields = dataclasses.fields(cls)
        if "__repr__" not in own:
            cls.__repr__ = _repr([each.name for each in fields if each.repr])
        if "__eq__" not in own:
            cls.__eq__ = _eq(_values(each.name for each in fields if each.compare))
        if not hashed_by_itself:
            hashed = (each.compare if each.hash is None else each.hash for each in fields)
            names = (each.name for each, counts in zip(fields, hashed) if counts)
            cls.__hash__ = _hash(_values(names)) if frozen else None
        return cls


def _values(names: Any) -> Callable[[Any], Any]:
    listed = tuple(names)
    return attrgetter(*listed) if listed else lambda _instance: None


def _eq(values: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hash(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _repr(names: list[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    return __repr__
