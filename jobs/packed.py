"""Small frozen records that travel to workers by the thousand."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

_ARGUMENTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


class Packed:
    """A dataclass of two fields or more that is pickled as the arguments of its constructor.

    What dataclasses do for frozen ones with slots walks their fields in Python, both ways: most of what handing out a
    batch would cost.
    """

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        kind = type(self)
        found = _ARGUMENTS.get(kind)
        if found is None:
            found = _ARGUMENTS[kind] = operator.attrgetter(*self.__match_args__)
        return kind, found(self)
