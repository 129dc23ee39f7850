# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a leaf and a spine of the reference cluster hold in the end, every port of 64 in use.

`UPDATE_GOLDEN=1` writes the files anew. With SONIC_YANG_MODELS they are checked against SONiC's own
models: a directory such as /usr/local/yang-models of a switch, or src/sonic-yang-models of
sonic-buildimage. That needs the package libyang2-tools.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import SYSTEM

from tests.unit.sonic_switch import Config, after, intents, new_switch, present
from tests.unit.sonic_yang import Models

GOLDEN = Path(__file__).parent / "golden" / "fabric" / "sonic"
SWITCHES = ("leaf01", "spine01")
MODELS = os.environ.get("SONIC_YANG_MODELS", "")


def reached(name: str) -> Config:
    intent = intents(nodes=48)[name]
    assert len(intent.ports) == {"leaf01": 64, "spine01": 32}[name]
    config = new_switch()
    config["DEVICE_METADATA"]["localhost"]["hostname"] = name
    steps = SYSTEM.difference(intent, SYSTEM.wanted(intent), present(config)).steps
    return after(config, steps)


def written(config: Config) -> str:
    """CONFIG_DB as JSON, a row on each line."""
    tables = []
    for table, rows in sorted(config.items()):
        lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(rows[key])}" for key in rows)
        tables.append(f"  {json.dumps(table)}: {{\n{lines}\n  }}")
    return "{\n" + ",\n".join(tables) + "\n}\n"


@pytest.mark.parametrize("name", SWITCHES)
def test_config_db_is_the_golden_one(name: str) -> None:
    text = written(reached(name))
    path = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    assert json.loads(text) == reached(name)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    if not MODELS:
        pytest.skip("SONIC_YANG_MODELS names no directory of SONiC's YANG models")
    if not shutil.which("yanglint"):
        pytest.skip("there is no yanglint (Debian package libyang2-tools) to check with")
    return Models(Path(MODELS), tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("name", SWITCHES)
def test_config_db_keeps_sonics_own_models(name: str, models: Models) -> None:
    config = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert models.findings(config) == ""
    assert set(config) - set(models.tables) == set(), "a table without a model is checked by nobody"


@pytest.mark.parametrize(
    ("table", "key", "field", "value"),
    [
        ("DSCP_TO_TC_MAP", "BAREMETAL_MPI_ROCE", "26", "16"),
        ("PORT_QOS_MAP", "Ethernet0", "pfc_enable", "3-4"),
        ("PORT_QOS_MAP", "Ethernet0", "dscp_to_tc_map", "[DSCP_TO_TC_MAP|BAREMETAL_MPI_ROCE]"),
        ("QUEUE", "Ethernet0|3", "scheduler", "NONE"),
        ("BUFFER_PG", "Ethernet0|3", "profile", "NONE"),
        ("BUFFER_PROFILE", "BAREMETAL_MPI_ROCE_800G_50M", "dynamic_th", "9"),
        ("WRED_PROFILE", "BAREMETAL_MPI_ROCE", "green_min_threshold", "9999999"),
        ("SCHEDULER", "BAREMETAL_MPI_ROCE_ROCE", "weight", "101"),
        ("CABLE_LENGTH", "AZURE", "Ethernet0", "50"),
        ("PFC_WD", "Ethernet0", "detection_time", "50"),
        ("PORT", "Ethernet0", "mtu", "9999"),
    ],
)
def test_the_models_find_what_is_wrong(
    models: Models, table: str, key: str, field: str, value: str
) -> None:
    config = copy.deepcopy(json.loads((GOLDEN / "leaf01.json").read_text(encoding="utf-8")))
    config[table][key][field] = value
    assert models.findings(config) != ""
