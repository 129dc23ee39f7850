# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""IPv4 networks as integers, and a routing table that compares the networks of a leaf together.

With links of two addresses, a table has a route for each rail of each node. All networks of a leaf
have the same next hops, and are equally far apart: they are one entry of a report.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

Prefix = tuple[int, int]
"""First address and length of a network."""
Hops = frozenset[str]
"""The interfaces of the next hops."""
_BITS = 6
"""Of the length in the key of a network."""


def prefix_of(text: Any) -> Optional[Prefix]:
    """A network, from text that may have host bits; None for anything but IPv4."""
    try:
        network = ipaddress.IPv4Network(str(text), strict=False)
    except ValueError:
        return None
    return int(network.network_address), network.prefixlen


def key_of(prefix: Prefix) -> int:
    return prefix[0] << _BITS | prefix[1]


def text_of(key: int) -> str:
    first, length = _prefix(key)
    return f"{ipaddress.IPv4Address(first)}/{length}"


def _prefix(key: int) -> Prefix:
    return key >> _BITS, key & ((1 << _BITS) - 1)


def ranges_of(keys: Iterable[int]) -> list[list[int]]:
    """Start, end and step of ranges that have these numbers, each in one of them."""
    left = sorted(keys, key=lambda key: (_prefix(key)[1], key))
    found: list[list[int]] = []
    place = 0
    while place < len(left):
        start, last = left[place], place + 1
        step = left[last] - start if last < len(left) else 1
        while last < len(left) and step > 0 and left[last] - left[last - 1] == step:
            last += 1
        step = max(step, 1)
        found.append([start, left[last - 1] + 1, step if last - place > 1 else 1])
        place = last
    return found


class Routes(Mapping[Prefix, Hops]):
    """Next hops by network."""

    def __init__(self, groups: Iterable[tuple[Hops, Iterable[Sequence[int]]]]) -> None:
        """`groups`: ranges of keys, by their next hops."""
        self._hops: dict[int, Hops] = {}
        self._keys: dict[Hops, set[int]] = {}
        for hops, ranges in groups:
            own = self._keys.setdefault(hops, set())
            for each in ranges:
                own.update(range(*each))
            self._hops.update(dict.fromkeys(own, hops))
        self._lengths = sorted({_prefix(key)[1] for key in self._hops}, reverse=True)

    @classmethod
    def of(cls, routes: Mapping[Prefix, Hops]) -> Routes:
        if isinstance(routes, Routes):
            return routes
        keys: dict[Hops, list[int]] = {}
        for prefix, hops in routes.items():
            keys.setdefault(hops, []).append(key_of(prefix))
        return cls((hops, [(key, key + 1) for key in own]) for hops, own in keys.items())

    @property
    def groups(self) -> Iterator[tuple[Hops, list[list[int]]]]:
        for hops, keys in self._keys.items():
            yield hops, ranges_of(keys)

    def __getitem__(self, prefix: Prefix) -> Hops:
        return self._hops[key_of(prefix)]

    def __iter__(self) -> Iterator[Prefix]:
        return map(_prefix, self._hops)

    def __len__(self) -> int:
        return len(self._hops)

    def common(self, keys: Collection[int]) -> Optional[Hops]:
        """The next hops, if each of these networks has a route itself, to the same ones."""
        hops = self._hops.get(next(iter(keys), -1))
        return hops if hops is not None and self._keys[hops].issuperset(keys) else None

    def longest(self, key: int) -> tuple[Optional[Hops], int]:
        """The next hops and the length of the longest route that covers a network; None and 0
        without a route."""
        first, length = _prefix(key)
        for shorter in self._lengths:
            if shorter <= length:
                covering = first >> (32 - shorter) << (32 - shorter), shorter
                hops = self._hops.get(key_of(covering))
                if hops is not None:
                    return hops, shorter
        return None, 0
