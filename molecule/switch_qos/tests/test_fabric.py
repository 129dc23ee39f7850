# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each switch has the contract in its own syntax, in effect and saved."""

from __future__ import annotations

import pytest

from tests.fabric import switch


@pytest.mark.parametrize("name", ["leaf01", "leaf02", "leaf03"])
def test_the_contract_is_in_effect_and_saved_on_each_system(nodes, name):
    switch(nodes, name).keeps_the_contract()
