# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Possible answers of a compromised host: any JSON, as a whole or at one position."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

WORDS = st.sampled_from(
    ["", "node01", "ok", "{{ 7 * 7 }}", "a\nb", "\x1b[2J", "../x", "'; id", "x" * 5000, "\u2028"]
)
SIMPLE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), WORDS, st.just(10**400), st.text()
)
JSON = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(WORDS | st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each value inside."""
    yield path
    if isinstance(value, (dict, list)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, key))


@st.composite
def spoilt(draw: Any, healthy: Any) -> Any:
    """A healthy answer with any JSON at one position, which is sometimes missing."""
    answer = copy.deepcopy(healthy)
    path = draw(st.sampled_from(list(places(answer))))
    if not path:
        return draw(JSON)
    inside = answer
    for key in path[:-1]:
        inside = inside[key]
    if isinstance(inside, dict) and draw(st.integers(0, 4)) == 0:
        del inside[path[-1]]
    else:
        inside[path[-1]] = draw(JSON)
    return answer
