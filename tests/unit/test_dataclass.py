# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""plugins/module_utils/core/dataclass.py beside the standard decorator, which it stands for."""

from __future__ import annotations

import dataclasses

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import dataclass as ours
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.one_of(st.integers(0, 2), st.sampled_from(["", "a"]))


@st.composite
def classes(draw):
    """The same class made by both: fields that some of ==, hash and repr leave out."""
    fields = [
        (
            f"field{number}",
            {
                "default": draw(VALUES),
                "compare": draw(st.booleans()),
                "repr": draw(st.booleans()),
                "hash": draw(st.sampled_from([None, None, True, False])),
            },
        )
        for number in range(draw(st.integers(0, 3)))
    ]
    frozen = draw(st.booleans())

    def made(decorator):
        body = {name: dataclasses.field(**options) for name, options in fields}
        annotations = dict.fromkeys(body, "int")
        plain = type("Made", (), {**body, "__annotations__": annotations, "__qualname__": "Made"})
        return decorator(frozen=frozen)(plain)

    names = [name for name, _options in fields]
    given = st.dictionaries(st.sampled_from(names), VALUES) if names else st.just({})
    return made(dataclasses.dataclass), made(ours.dataclass), draw(given), draw(given)


@given(classes())
def test_equality_hash_and_text_are_those_of_the_standard_one(drawn):
    standard, own, left, right = drawn
    assert (own(**left) == own(**right)) == (standard(**left) == standard(**right))
    assert own(**left) != standard(**left)
    assert repr(own(**left)) == repr(standard(**left))
    if standard.__hash__ is None:
        assert own.__hash__ is None
    else:
        same = hash(standard(**left)) == hash(standard(**right))
        assert (hash(own(**left)) == hash(own(**right))) == same
    assert dataclasses.asdict(own(**left)) == dataclasses.asdict(standard(**left))
    assert dataclasses.replace(own(**left), **right) == own(**{**left, **right})


def test_what_a_class_defines_itself_stays():
    @ours.dataclass(frozen=True)
    class Own:
        name: str

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 7

        def __repr__(self):
            return "own"

    assert Own("a") == Own("b")
    assert hash(Own("a")) == 7
    assert repr(Own("a")) == "own"
