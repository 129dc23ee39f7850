# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The site's slurm.conf, and answers of slurmctld, against the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    OK,
    PENDING,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm import compare, conf, texts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.cluster import SlurmCluster
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.state import (
    NodeState,
    SlurmError,
    SwitchState,
    parse_config,
    parse_node,
    parse_nodes,
    parse_topology,
    parse_version,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.slurm_cluster import cluster, mixed

PROLOG = "/usr/local/libexec/baremetal-mpi-roce/slurm-prolog"
SETTINGS = texts.Settings((22, 5), prolog=PROLOG, health_check="/health")
INCLUDED = {
    "/etc/slurm/site.conf": "TaskPlugin=task/none\nInclude nodes.conf\nInclude site.conf\n",
    "/etc/slurm/nodes.conf": "# ours\nnodename=login[1-2],node[02-03] CPUs=4\n",
    "/etc/slurm/baremetal-nodes.conf": "NodeName=node01\n",
}


def parsed(text: str) -> list[conf.Line]:
    return conf.parse(text, "/etc/slurm/slurm.conf", INCLUDED.get, ours=texts.INCLUDED)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("A=1", [(1, "A", "1")]),
        ("  a = 1  # b=2\n\n#c=3\nD=4", [(1, "a", "1"), (4, "D", "4")]),
        ('A="x y" B=z', [(1, "A", "x y")]),
        ("A=1,\\\n  2\nB=3", [(1, "A", "1,"), (3, "B", "3")]),
        # Slurm joins lines before it removes comments.
        ("# a \\\nB=1\nC=2", [(3, "C", "2")]),
        ("A=b\\#c", [(1, "A", "b\\#c")]),
        ("A=1 \\ \nB=2", [(1, "A", "1")]),
        ("A+=1", [(1, "A", "1")]),
        ("include /none\nrubbish\nA=1\r\n", [(3, "A", "1")]),
        ("A=1\\", [(1, "A", "1")]),
    ],
)
def test_lines_of_slurm_conf(text: str, lines: list[tuple[int, str, str]]) -> None:
    found = [(line.number, *line.pairs[0]) for line in conf.parse(text)]
    assert found == lines


def test_a_long_line_takes_no_time() -> None:
    """It took 16 s for 40,000 characters, and an hour for the limit."""
    assert conf.parse("a" * 1_000_000) == []


def test_included_files_are_read_once_and_ours_never() -> None:
    text = "Include /etc/slurm/baremetal-nodes.conf\nInclude site.conf\nA=1"
    assert [(line.at, line.pairs[0][0]) for line in parsed(text)] == [
        ("/etc/slurm/site.conf:1", "TaskPlugin"),
        ("/etc/slurm/nodes.conf:2", "nodename"),
        ("/etc/slurm/slurm.conf:3", "A"),
    ]


@given(st.text(max_size=200))
def test_any_file_is_read(text: str) -> None:
    for line in conf.parse(text):
        assert line.pairs and 1 <= line.number <= len(text.splitlines())


def named(text: str, settings: texts.Settings = SETTINGS) -> list[tuple[str, str, str, bool]]:
    found = compare.contradictions(cluster("b300"), settings, parsed(text))
    return [(each.subject, each.at, each.found, each.fatal) for each in found]


AT = "/etc/slurm/slurm.conf:1"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SelectType=select/linear", [("SelectType", AT, "select/linear", False)]),
        ("selecttype=select/cons_tres", []),
        ("SelectType=select/linear\nSelectType=select/cons_tres", []),
        ("SelectTypeParameters=CR_CPU", []),
        ("TopologyPlugin=topology/none", [("TopologyPlugin", AT, "topology/none", False)]),
        ("MpiDefault=none", [("MpiDefault", AT, "none", False)]),
        ("MpiDefault=pmix_v4", []),
        ("ProctrackType=proctrack/linuxproc", [
            ("ProctrackType", AT, "proctrack/linuxproc", False)]),
        ("GresTypes=mps,gpu", []),
        ("GresTypes=mps", [("GresTypes", AT, "mps", False)]),
        ("PrologFlags=X11", []),
        ("SchedulerParameters=bf_continue,nohold_on_prolog_fail", []),
        ("SchedulerParameters=bf_continue", [("SchedulerParameters", AT, "bf_continue", False)]),
        ("PrologFlags=Serial", [("PrologFlags", AT, "Serial", False)]),
        (f"Prolog={PROLOG}", []),
        ("Prolog=/opt/site/prolog", [("Prolog", AT, "/opt/site/prolog", False)]),
        ("HealthCheckInterval=60", []),
        ("HealthCheckInterval=0", [("HealthCheckInterval", AT, "0", False)]),
        ("RebootProgram=/x", []),
        ("PropagateResourceLimits=NONE", []),
        ("PropagateResourceLimits=ALL", [("PropagateResourceLimits", AT, "ALL", False)]),
        ("PropagateResourceLimitsExcept=CPU,MEMLOCK", []),
        ("PropagateResourceLimitsExcept=CPU", [
            ("PropagateResourceLimitsExcept", AT, "CPU", False)]),
        ("NodeName=node[03-20] CPUs=4", [
            ("NodeName=node[03-04]", AT, "node[03-20]", True)]),
        ("NodeName=gpu[01-04]", []),
        ("NodeName=DEFAULT CPUs=3", []),
        ("NodeName=node[1-", []),
        ("PartitionName=all Nodes=login1", [("PartitionName=all", AT, "all", True)]),
        ("PartitionName=debug Nodes=node01 Default=YES", []),
        ("Include site.conf", [
            ("NodeName=node[02-03]", "/etc/slurm/nodes.conf:2", "login[1-2],node[02-03]", True),
            ("TaskPlugin", "/etc/slurm/site.conf:1", "task/none", False)]),
        ("AccountingStorageType=accounting_storage/slurmdbd", []),
    ],
)  # fmt: skip
def test_contradictions(text: str, found: list[tuple[str, str, str, bool]]) -> None:
    assert named(text) == found


def test_a_contradiction_is_a_failed_check_with_its_line() -> None:
    found = compare.contradictions(cluster("b300"), SETTINGS, parsed("MpiDefault=none"))
    check = found[0].check()
    assert (check.name, check.status, check.subject, check.wanted, check.found, check.reason) == (
        *("slurm_site", FAILED, "MpiDefault", "pmix", "none", AT),
    )
    assert "MpiDefault=pmix" in check.by_hand
    (listed,) = compare.contradictions(cluster("b300"), SETTINGS, parsed("GresTypes=mps"))
    assert listed.remedy == "remove the line, or add gpu to its list"


def test_topology_plugin_is_not_read_with_topology_yaml() -> None:
    assert named("TopologyPlugin=topology/none", replace(SETTINGS, version=(25, 5))) == []


def written(text: str, settings: texts.Settings = SETTINGS) -> dict[str, str]:
    known = conf.known(parsed(text))
    return texts.written(cluster("b300"), replace(settings, known=known))


def test_what_the_site_sets_is_not_written_again() -> None:
    everything = written("")
    assert everything == texts.wanted(cluster("b300"), SETTINGS)
    assert {*everything} - {*written("grestypes=gpu,mps\nMpiDefault=none")} == {
        *("GresTypes", "MpiDefault"),
    }
    # slurmctld does not start with linear selection of cores.
    assert {*everything} - {*written("SelectType=select/linear")} == {
        *("SelectType", "SelectTypeParameters"),
    }
    assert {*everything} - {*written("SelectType=select/cons_tres")} == {"SelectType"}
    assert {*everything} - {*written("ProctrackType=proctrack/linuxproc")} == {
        *("ProctrackType", "TaskPlugin", "PrologFlags"),
    }
    assert {*everything} - {*written("HealthCheckProgram=/site")} == {
        *("HealthCheckProgram", "HealthCheckInterval", "HealthCheckNodeState"),
    }
    assert "PropagateResourceLimitsExcept" not in written("PropagateResourceLimits=NONE")


def test_programs_of_the_site_run_next_to_ours_where_slurm_has_several() -> None:
    new = replace(SETTINGS, version=(24, 5))
    text = "Prolog=/site/one\nProlog=/site/two\nHealthCheckProgram=/site"
    assert [each[0] for each in named(text)] == ["Prolog", "HealthCheckProgram"]
    assert [each[0] for each in named(text, new)] == ["HealthCheckProgram"]
    assert "Prolog" not in written(text) and written(text, new)["Prolog"] == PROLOG
    assert "Prolog" not in written(f"{text}\nProlog={PROLOG}", new)


def test_the_site_may_have_the_default_partition() -> None:
    known = conf.known(parsed("PartitionName=debug Nodes=login1 Default=yes"))
    made = texts.texts(cluster("b300"), replace(SETTINGS, known=known))
    assert "PartitionName=all Nodes=node[01-04] Default=NO" in made[texts.PARTITIONS]


# Answers of slurmctld 22.05.8 (Debian) for a model of four nodes

NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=56  CPUAlloc=0 CPUEfctv=224 CPUTot=224 CPULoad=0.01"
    " AvailableFeatures={features} ActiveFeatures={features} Gres={gres} NodeAddr={address}"
    " NodeHostName={name} Version={version} OS=Linux 6.1.0-1 #1 SMP State=x  RealMemory={memory}"
    " AllocMem=0 FreeMem=N/A Sockets=2 Boards=1 State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1"
    " Owner=N/A MCS_label=N/A Partitions=all  BootTime=None SlurmdStartTime=None"
    " LastBusyTime=Unknown CfgTRES=cpu=224,mem=2063000M,billing=224 AllocTRES= CapWatts=n/a{end}\n"
)


def shown(made: SlurmCluster, **changes: str) -> dict[str, NodeState]:
    """`scontrol show node`, where the first node differs."""
    text = ""
    for node in made.nodes:
        values = {
            "name": node.name, "address": node.address, "version": "22.05.8",
            "features": ",".join(node.features), "gres": f"{node.hardware.gres}(S:0-1)",
            "memory": "2063000", "state": "IDLE", "end": "",
        }  # fmt: skip
        text += NODE.format(**{**values, **(changes if node is made.nodes[0] else {})})
    return parse_nodes(text.replace("State=x", "state=x"))


def bad(checks: Iterable[Check]) -> list[tuple[str, str, str]]:
    return [(each.name, each.subject, each.status) for each in checks if each.status != OK]


def test_nodes_as_in_the_model() -> None:
    made = cluster("b300")
    checks = compare.nodes(made.nodes, shown(made), "22.05.8")
    assert bad(checks) == []
    names = ("slurm_node", "slurm_gres", "slurm_state", "slurm_drained", "slurm_version")
    assert [check.name for check in checks] == [*names] * 4


@pytest.mark.parametrize(
    ("changes", "name", "wanted", "found"),
    [
        ({"memory": "1"}, "slurm_node", {"memory_mb": 2063000}, {"memory_mb": 1}),
        ({"address": "10.9.9.9"}, "slurm_node", {"address": "10.10.1.1"}, {"address": "10.9.9.9"}),
        ({"features": "x"}, "slurm_node", {"features": ["rack_r01"]}, {"features": []}),
        ({"gres": "gpu:b300:7"}, "slurm_gres", "gpu:b300:8", "gpu:b300:7"),
        ({"gres": "(null)"}, "slurm_gres", "gpu:b300:8", ""),
        ({"state": "DOWN*"}, "slurm_state", "responds", "DOWN+NOT_RESPONDING"),
        ({"state": "IDLE+NOT_RESPONDING"}, "slurm_state", "responds", "IDLE+NOT_RESPONDING"),
        (
            {"state": "IDLE+DRAIN", "end": " Reason=bad DIMM [root@2026-01-05T10:00:00]"},
            *("slurm_drained", "in service", "by others"),
        ),
        (
            {"state": "IDLE+DRAIN", "end": f" Reason={texts.MODEL_DRAIN} [root@2026-01-05]"},
            *("slurm_drained", "in service", "by the model"),
        ),
        ({"version": "21.08.5"}, "slurm_version", "22.05.8", "21.08.5"),
    ],
)
def test_one_fault_is_one_check(
    changes: dict[str, str], name: str, wanted: object, found: object
) -> None:
    made = cluster("b300")
    failed = [
        each
        for each in compare.nodes(made.nodes, shown(made, **changes), "22.05.8")
        if each.status != OK
    ]
    assert [(each.name, each.subject, each.wanted, each.found) for each in failed] == [
        (name, "node01", wanted, found)
    ]
    assert failed[0].status == FAILED


def test_what_others_drained_is_not_what_the_role_changes() -> None:
    made = cluster("b300")
    for reason, status in (("bad DIMM", FAILED), (texts.MODEL_DRAIN, PENDING)):
        state = shown(made, state="IDLE+DRAIN", end=f" Reason={reason} [a@b]")
        found = compare.nodes(made.nodes, state, check_mode=True)
        assert bad(found) == [("slurm_drained", "node01", status)]
    drained = replace(made.nodes[0], drained=True)
    assert bad(compare.nodes([drained], shown(made), check_mode=True)) == [
        ("slurm_drained", "node01", PENDING)
    ]
    state = shown(made, state="IDLE+DRAIN", end=" Reason=bad DIMM [a@b]")
    assert bad(compare.nodes([drained], state)) == []


def test_a_node_that_slurmctld_does_not_know() -> None:
    made = cluster("b300")
    found = {name: state for name, state in shown(made).items() if name != "node03"}
    assert bad(compare.nodes(made.nodes, found)) == [("slurm_node", "node03", FAILED)]
    old = replace(shown(made)["node01"], name="gpu01")
    assert bad(compare.strangers(made, {**found, "gpu01": old})) == [
        ("slurm_node", "10.10.1.1", FAILED)
    ]
    login = replace(old, name="login", address="10.10.0.99")
    assert compare.strangers(made, {**found, "login": login}) == []


def test_the_state_is_not_in_what_others_wrote() -> None:
    line = NODE.format(
        name="n", address="a", version="v", features="f", gres="g", memory="7", state="IDLE+DRAIN",
        end=" Reason=Sockets=9 State=IDLE Version=9 x [y] [root@now] Comment=State=DOWN Port=9",
    ).replace("State=x", "").replace("Version=v ", "")  # fmt: skip
    state = parse_node("n", line)
    assert (state.state, state.sockets, state.memory_mb) == ("IDLE+DRAIN", 2, 7)
    assert state.version == ""
    assert state.reason.startswith("Sockets=9 State=IDLE Version=9 x")
    with pytest.raises(SlurmError, match="no State="):
        parse_node("n", "NodeName=n")
    text = "NodeName=n State=IDLE+DRAIN Reason=x\x85NodeName=m State=IDLE\n"
    assert list(parse_nodes(text)) == ["n"]


@given(st.text(max_size=300))
def test_any_answer_is_read_or_refused(text: str) -> None:
    for each in (text, f"NodeName={text} State={text}", f"SwitchName=a Nodes={text}"):
        for parse in (parse_nodes, parse_topology, parse_config):
            try:
                found = parse(each)
            except SlurmError:
                continue
            assert len(str(found)) < 20 * len(each) + 1000
    parse_version(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("slurm-wlm 22.05.8", (22, 5)),
        ("slurm 25.05.3", (25, 5)),
        ("slurm 24.11.0-0rc1\n", (24, 11)),
        ("bash: scontrol: not found", None),
    ],
)
def test_versions(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version


# Topology and settings


def states(made: SlurmCluster) -> dict[str, SwitchState]:
    below = texts.nodes_below(made)
    return {
        each.name: SwitchState(each.name, each.level, below[each.name], frozenset(each.switches))
        for each in made.switches
    }


@pytest.mark.parametrize("name", ["b300", "examples/superpod-b300-4su", "mixed"])
def test_the_same_topology_is_one_good_check(name: str) -> None:
    made = mixed() if name == "mixed" else cluster(name)
    checks = compare.topology(made, states(made))
    assert [(each.name, each.status) for each in checks] == [("slurm_topology", OK)]


def test_each_other_switch_is_named() -> None:
    made = cluster("examples/superpod-b300-4su")
    found = states(made)
    two = found["set02"]
    found["set02"] = replace(two, nodes=two.nodes - {"node0064"})
    found["other"] = replace(two, name="other")
    del found["unit03"]
    found["unit04"] = replace(found["unit04"], level=2)
    found["fabric01"] = replace(found["fabric01"], switches=frozenset(["unit01"]))
    checks = compare.topology(made, found)
    names = ("set02", "unit03", "unit04", "fabric01", "other")
    assert bad(checks) == [("slurm_topology", name, FAILED) for name in names]
    assert "node[0033-0063]" in checks[0].found and "node[0033-0064]" in checks[0].wanted


def test_settings_are_compared_as_slurm_shows_them() -> None:
    wanted = texts.wanted(cluster("b300"), replace(SETTINGS, reboot_program="/sbin/reboot"))
    answer = f"""\
    GresTypes               = gpu
    MpiDefault              = pmix
    Prolog[0]               = /site/prolog
    Prolog[1]               = {PROLOG}
    HealthCheckProgram      = /health
    HealthCheckInterval     = 300 sec
    HealthCheckNodeState    = CYCLE,ANY
    ResumeTimeout           = 1800 sec
    RebootProgram           = /sbin/reboot
    ProctrackType           = proctrack/cgroup
    PrologFlags             = Alloc,Contain
    PropagateResourceLimitsExcept = MEMLOCK
    SchedulerParameters     = nohold_on_prolog_fail
    SelectType              = select/cons_tres
    SelectTypeParameters    = CR_CORE_MEMORY
    TaskPlugin              = task/affinity,task/cgroup
    TopologyPlugin          = topology/tree
    """
    assert bad(compare.config(wanted, parse_config(answer))) == []
    for old, new, key in (
        (PROLOG, "/other", "Prolog"),
        ("= pmix", "= none", "MpiDefault"),
        ("= /sbin/reboot", "= (null)", "RebootProgram"),
        ("task/affinity,task/cgroup", "task/none", "TaskPlugin"),
    ):
        changed = parse_config(answer.replace(old, new))
        assert bad(compare.config(wanted, changed)) == [("slurm_config", key, FAILED)]
