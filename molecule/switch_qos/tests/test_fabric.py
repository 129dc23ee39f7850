# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each switch has the contract in its own syntax, in effect and saved."""

from __future__ import annotations

import pytest

from tests.fabric import switch


@pytest.mark.parametrize("name", ["leaf01", "leaf02", "leaf03"])
def test_it_is_in_force_and_saved_in_the_words_of_each_system(nodes, name):
    switch(nodes, name).keeps_the_contract()
