# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role's order, and that role and module agree on their options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.modules import shared_storage

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles/shared_storage"


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


DEFAULTS = load(ROLE / "defaults/main.yml")
SPECS = load(ROLE / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
TASKS = load(ROLE / "tasks/main.yml")
OPTIONS = yaml.safe_load(shared_storage.DOCUMENTATION)["options"]


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_default_is_described_with_its_value(name):
    if name != "shared_storage_report_directory":
        assert SPECS[name]["default"] == DEFAULTS[name]


def test_every_variable_that_is_described_has_a_default():
    assert {name for name in SPECS if name.startswith("shared_storage_")} == set(DEFAULTS)


def test_role_and_module_have_the_same_defaults():
    for role, module in (
        ("mount_timeout_s", "mount_timeout_s"),
        ("mount_wait_s", "mount_wait_s"),
        ("server_threads", "server_threads"),
        ("server_restart", "server_restart"),
        ("lustre_root", "lustre_root"),
    ):
        assert DEFAULTS[f"shared_storage_{role}"] == OPTIONS[module]["default"]


def test_servers_settle_before_the_others_and_all_write_before_any_reads():
    settle, use = TASKS[1]["block"], TASKS[2]["block"]
    assert settle[0]["when"] == "inventory_hostname in __shared_storage_servers"
    assert settle[1]["when"] == "inventory_hostname not in __shared_storage_servers"
    given = TASKS[1]["module_defaults"]["baremetal.mpi_roce.shared_storage"]
    assert set(given) <= set(OPTIONS)
    # Made anew for each host: of ten thousand for ten thousand it would be a day's work.
    assert "directory" not in given
    arguments = [task["baremetal.mpi_roce.shared_storage"] or {} for task in settle]
    assert ["directory" in each for each in arguments] == [True, False]
    rounds = [task["baremetal.mpi_roce.storage_use"]["round"] for task in use]
    after = TASKS[2]["always"]
    rounds += [task["baremetal.mpi_roce.storage_use"]["round"] for task in after]
    assert rounds == ["plan", "write", "read", "report", "verdict"]
    registered = [task.get("register") for task in [*use, *after]]
    assert registered == [*(f"__shared_storage_{each}" for each in rounds[:-1]), None]
    # A verdict that runs once would end the play for all hosts.
    assert [task.get("run_once", False) for task in [*use, *after]] == [
        *(True, False, False, True, False),
    ]
