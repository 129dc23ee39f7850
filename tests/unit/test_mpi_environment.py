# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What MPI is told on a host: the environment file, Open MPI's parameters, rails by rank."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils import files
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi_environment import (
    LAUNCH_AGENT,
    Layout,
    Rail,
    Settings,
    SettingsError,
    effective_parameters,
    environment,
    environment_text,
    management_network,
    parameter_lines,
    parameters,
    parse_environment,
    rails_by_rank,
    rails_from_model,
    rdma_devices,
    with_devices,
)
from hypothesis import given
from hypothesis import strategies as st

ROLE_FILES = Path(__file__).parents[2] / "roles/mpi_stack/files"
RAILS = tuple(Rail(f"rail{number}", number) for number in range(8))
LAYOUT = Layout("/etc/openmpi/openmpi-mca-params.conf")
NODE = Settings(LAYOUT, "10.10.0.0/22", rails=RAILS, slots=8)

DEBIAN_MCA_FILE = "mtl = ^ofi\nbtl = ^uct,openib,ofi\npml = ^ucx\nosc = ^ucx,pt2pt"
"""What Debian 12 ships, without a line feed at its end."""


def test_a_node_gets_every_device_by_name() -> None:
    found = environment(NODE)
    assert found["UCX_NET_DEVICES"] == "rail0,rail1,rail2,rail3,rail4,rail5,rail6,rail7"
    assert found["MPI_ROCE_RAILS_BY_RANK"].split() == [rail.interface for rail in RAILS]
    assert found["UCX_TLS"] == "tcp,sm,self"


def test_rc_never_offers_tcp_to_fall_back_to() -> None:
    devices = {rail.interface: f"mlx5_{rail.gpu}:1" for rail in RAILS}
    rails = tuple(with_devices(RAILS, "rc", devices))
    found = environment(Settings(LAYOUT, "10.10.0.0/22", "rc", rails, 8))
    assert found["UCX_TLS"].split(",") == ["rc", "ud", "sm", "self"]
    assert found["UCX_NET_DEVICES"].startswith("mlx5_0:1,mlx5_1:1,")


def test_a_launcher_without_rails_names_no_device() -> None:
    launcher = Settings(LAYOUT, "10.10.0.0/22")
    assert environment(launcher) == {"UCX_TLS": "tcp,sm,self"}
    assert parameters(launcher)["btl_tcp_if_include"] == "10.10.0.0/22"


def test_launching_is_on_management_and_data_on_rails() -> None:
    found = parameters(NODE)
    assert found["oob_tcp_if_include"] == "10.10.0.0/22"
    assert found["btl_tcp_if_include"] == "rail0,rail1,rail2,rail3,rail4,rail5,rail6,rail7"
    assert found["orte_launch_agent"] == LAUNCH_AGENT
    assert found["plm_rsh_no_tree_spawn"] == "1"
    assert "mpi_yield_when_idle" not in found


def test_ranks_that_share_cores_yield_and_are_not_bound() -> None:
    found = parameters(Settings(LAYOUT, "10.10.0.0/22", oversubscribe=True))
    assert found["mpi_yield_when_idle"] == "1"
    assert found["hwloc_base_binding_policy"] == "none"


def test_the_operators_own_settings_win() -> None:
    settings = Settings(
        LAYOUT,
        "10.10.0.0/22",
        extra_environment={"UCX_TLS": "rc_x,self"},
        extra_parameters={"pml": "ob1"},
    )
    assert environment(settings)["UCX_TLS"] == "rc_x,self"
    assert parameters(settings)["pml"] == "ob1"


def test_the_block_wins_over_what_debian_ships() -> None:
    text = files.replace_block(DEBIAN_MCA_FILE, parameter_lines(parameters(NODE)), "mpi")
    assert effective_parameters(DEBIAN_MCA_FILE)["pml"] == "^ucx"
    found = effective_parameters(text)
    assert {name: found[name] for name in parameters(NODE)} == parameters(NODE)
    assert found["mtl"] == "^ofi"


def test_a_later_line_of_the_operator_is_seen() -> None:
    assert effective_parameters("pml = ucx\n# pml = cm\npml=ob1 # mine\n")["pml"] == "ob1"


def test_unknown_transport_and_double_rail_are_refused() -> None:
    with pytest.raises(SettingsError, match="'ib' is not known; choose one of: tcp, rc"):
        Settings(LAYOUT, "10.10.0.0/22", "ib")
    with pytest.raises(SettingsError, match="rail0 is listed twice"):
        Settings(LAYOUT, "10.10.0.0/22", rails=(Rail("rail0"), Rail("rail0")))
    with pytest.raises(SettingsError, match=r"cluster_rails\[1\] has no interface"):
        rails_from_model([{"interface": "rail0"}, {"rail": 1}])


def test_rc_without_an_rdma_device_says_which_rail_and_the_way_out() -> None:
    with pytest.raises(SettingsError, match=r"rail1 has no RDMA device.*transport to tcp"):
        with_devices([Rail("rail0"), Rail("rail1")], "rc", {"rail0": "mlx5_0:1"})
    assert with_devices([Rail("rail0")], "tcp", {}) == [Rail("rail0")]


def test_management_network_of_an_address() -> None:
    assert management_network("10.10.1.7", 22) == "10.10.0.0/22"
    assert management_network("fd00::7", 64) == "fd00::/64"


def test_rdma_devices_are_found_by_their_interface(tmp_path: Path) -> None:
    for device, interface in (("mlx5_3", "rail1"), ("rxe0", "rail0")):
        table = tmp_path / f"class/infiniband/{device}/ports/1/gid_attrs/ndevs"
        table.mkdir(parents=True)
        (table / "0").write_text(interface + "\n")
    assert rdma_devices(tmp_path) == {"rail0": "rxe0:1", "rail1": "mlx5_3:1"}
    assert rdma_devices(tmp_path / "nothing") == {}


def test_a_rank_gets_the_rail_of_its_gpu() -> None:
    crossed = [Rail("rail0", 1), Rail("rail1", 0)]
    assert rails_by_rank(crossed, 2) == [["rail1"], ["rail0"]]
    planes = [Rail("rail0p0", 0), Rail("rail0p1", 0), Rail("rail1p0", 1), Rail("rail1p1", 1)]
    assert rails_by_rank(planes, 2) == [["rail0p0", "rail0p1"], ["rail1p0", "rail1p1"]]
    assert rails_by_rank([], 4) == []


@given(st.integers(1, 20), st.integers(1, 40), st.booleans())
def test_every_rail_is_used_and_no_rank_is_without(rails: int, slots: int, gpus: bool) -> None:
    found = rails_by_rank([Rail(f"r{k}", k if gpus else None) for k in range(rails)], slots)
    assert len(found) == slots
    assert all(found)
    if slots >= rails or not gpus:
        used = {name for names in found for name in names}
        assert len(used) == (rails if slots >= rails or rails >= slots else slots)
    sizes = [len(names) for names in found]
    assert max(sizes) - min(sizes) <= 1


KEYS = st.from_regex(r"[A-Z][A-Z0-9_]{0,12}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_the_environment_file_reads_back(values: dict[str, str]) -> None:
    assert parse_environment(files.with_header(environment_text(values))) == values


def sh(script: str, **variables: str) -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def profile(tmp_path: Path, values: dict[str, str]) -> str:
    """The profile, reading an environment file of ours."""
    path = tmp_path / "mpi.env"
    path.write_text(environment_text(values))
    text = (ROLE_FILES / "profile.sh").read_text()
    return text.replace("/etc/baremetal-mpi-roce/mpi.env", str(path))


def test_a_shell_reads_awkward_values_as_they_are(tmp_path: Path) -> None:
    script = profile(tmp_path, {"UCX_X": "a b'c\"d$HOME"}) + "\nenv"
    assert "UCX_X=a b'c\"d$HOME\n" in sh(script, HOME="/root")


def test_the_profile_puts_directories_first_and_once(tmp_path: Path) -> None:
    values = {"MPI_ROCE_BIN": "/opt/bin", "MPI_ROCE_LIB": "/opt/lib", "MPI_ROCE_PYTHON": "/opt/py"}
    script = profile(tmp_path, values)
    found = sh(f'{script}\n{script}\necho "$PATH $LD_LIBRARY_PATH $PYTHONPATH"', PYTHONPATH="/own")
    assert found.split() == ["/opt/bin:/usr/bin:/bin", "/opt/lib", "/opt/py:/own"]


def test_the_profile_is_silent_without_its_file() -> None:
    assert sh((ROLE_FILES / "profile.sh").read_text() + "\necho $?") == "0\n"


@pytest.mark.parametrize(("rank", "wanted"), [("0", "rail0"), ("1", "rail1,rail2"), ("2", "rail0")])
def test_rail_bind_gives_a_rank_its_own_rails(rank: str, wanted: str) -> None:
    found = subprocess.run(
        ["/bin/sh", str(ROLE_FILES / "rail-bind"), "sh", "-c", 'echo "$UCX_NET_DEVICES"'],
        env={
            "PATH": "/usr/bin:/bin",
            "OMPI_COMM_WORLD_LOCAL_RANK": rank,
            "MPI_ROCE_RAILS_BY_RANK": "rail0 rail1,rail2",
            "UCX_NET_DEVICES": "rail0,rail1,rail2",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == wanted + "\n"
