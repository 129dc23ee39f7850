# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Drafts of models from machines, and differences from the majority or a model."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.action.cluster_discover import (
    against_model,
    against_most,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.answers import AnswerError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.discover.differences import lines
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.discover.draft import (
    SECTIONS,
    Draft,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.discover.plan import NoDraftError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    Inventory,
    ModelError,
    compile_model,
    inventory_of,
    load,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import read as read_model
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.read_machines import (
    Facts,
    host,
    machines,
    neighbour,
    of_model,
    recorded,
    without_rails,
)
from tests.unit.small_model import ROOT, compiled, places

B300, MISSING = "b300-8x800g", "b300-missing-nic"
RAIL3 = "0000:5d:00.0"
HOSTS = ("10.10.1.1", "10.10.1.2", "10.10.1.3", "10.10.1.4")


def four(*others: tuple[int, str]) -> dict[str, Facts]:
    """Four recorded machines by address, from two recordings."""
    trees = dict(others)
    return {
        address: recorded(trees.get(number, B300), number)
        for number, address in enumerate(HOSTS, 1)
    }


def drafted(facts: dict[str, Facts], **groups: list[str]) -> Draft:
    return Draft(machines(facts), groups)


def rails(inventory: Inventory, *without: str) -> dict[str, list[dict[str, Any]]]:
    return {
        each.name: [
            {key: value for key, value in rail.items() if key not in without}
            for rail in each.variables["cluster_rails"]
        ]
        for each in inventory.hosts
        if "cluster_rails" in each.variables
    }


def found(draft: Draft) -> list[tuple[str, ...]]:
    return [tuple(each) for each in against_most(draft)]


def test_recorded_machines_give_the_reference() -> None:
    facts = {**four(), "10.10.0.10": without_rails("launcher01", "10.10.0.10/22")}
    draft = drafted(facts)
    reference = inventory_of(load(str(ROOT / "inventories/b300/cluster.yml")))
    assert rails(inventory_of(draft.cluster), "leaf_port") == rails(reference, "leaf_port")
    assert (
        draft.cluster.nodes[0].gpus
        == load(str(ROOT / "inventories/b300/cluster.yml")).nodes[0].gpus
    )
    assert (draft.cluster.launchers[0].name, draft.cluster.storage) == ("launcher01", [])
    assert draft.cluster.leaves[0].management["address"] == "10.10.2.1"
    assert found(draft) == []


def test_a_value_that_no_machine_showed_is_marked() -> None:
    facts = four()
    for each in facts.values():
        each["rdma_host"]["neighbours"] = None
        for face in each["rdma_host"]["interfaces"].values():
            face.update(addresses=[] if face["mtu"] == 9000 else face["addresses"], mtu=1500)
        for nic in each["rdma_hardware"]["nics"]:
            nic["speed_gbps"] = None
    marked = [line.split(":")[0] for line in drafted(facts).text.splitlines() if "# CHECK:" in line]
    assert [line.strip() for line in marked if "#" not in line] == [
        *("name", "speed_gbps", "pool", "count", "management_first", "ports", "name", "management"),
    ]
    assert drafted(facts).cluster.nodes[0].rails[0].mtu == 9000
    assert found(drafted(facts)) == []


def node(facts: dict[str, Facts], number: int) -> Facts:
    """`rdma_host` of a machine."""
    return facts[HOSTS[number - 1]]["rdma_host"]


def swap(facts: dict[str, Facts], first: tuple[int, str], second: tuple[int, str]) -> None:
    one, other = (node(facts, number)["neighbours"] for number, _rail in (first, second))
    one[first[1]], other[second[1]] = other[second[1]], one[first[1]]


CHANGES: tuple[tuple[Callable[[dict[str, Facts]], object], str], ...] = (
    (
        lambda facts: facts.update({HOSTS[1]: recorded("b300-nic-x8", 2)}),
        "2 rail2 PCIe: 64 GT/s x8, not 64 GT/s x16 (3 of 4)",
    ),
    (
        lambda facts: node(facts, 3)["interfaces"]["rail5"].update(mtu=1500),
        "3 rail5 MTU: 1500, not 9000 (3 of 4)",
    ),
    (
        lambda facts: facts[HOSTS[2]]["rdma_hardware"]["gpus"][0].update(numa=1),
        "3  NUMA nodes of GPUs: 1 0 0 0 1 1 1 1, not 0 0 0 0 1 1 1 1 (3 of 4)",
    ),
    (
        lambda facts: swap(facts, (2, "rail2"), (2, "rail3")),
        "2 rail2 cable: leaf04 Ethernet8, swapped with rail3, not leaf03 Ethernet8 (most)",
    ),
    (
        lambda facts: swap(facts, (1, "rail6"), (2, "rail6")),
        "1 rail6 cable: leaf07 Ethernet8, swapped with 10.10.1.2 rail6, "
        "not leaf07 Ethernet0 (most)",
    ),
    (
        lambda facts: node(facts, 2).update(neighbours=None),
        "2  LLDP: no answer, not answers (3 of 4)",
    ),
    (
        lambda facts: node(facts, 2)["neighbours"].pop("rail6"),
        "2 rail6 cable: no neighbour, not leaf07 Ethernet8 (most)",
    ),
)


@pytest.mark.parametrize(("change", "wanted"), CHANGES)
def test_a_machine_that_differs_from_most(
    change: Callable[[dict[str, Facts]], object], wanted: str
) -> None:
    facts = four()
    change(facts)
    assert [
        f"{host.removeprefix('10.10.1.')} {where} {what}: {here}, not {expected}"
        for host, where, what, here, expected in found(drafted(facts))
    ] == [wanted]


def test_a_missing_nic() -> None:
    draft = drafted(four((2, MISSING)))
    assert ("10.10.1.2", "rail3", "NIC", "missing", RAIL3) in found(draft)
    assert draft.cluster.nodes[1].rails[3].pci == RAIL3
    assert {host for host, *_rest in found(draft)} == {"10.10.1.2"}


def test_equal_differences_are_one_line() -> None:
    facts = four()
    for nic in facts["10.10.1.4"]["rdma_hardware"]["nics"]:
        nic["firmware"] = "40.44.1036" if nic["kind"] == "rail" else nic["firmware"]
    (line,) = [each for each in lines(against_most(drafted(facts))) if "firmware" in each]
    assert "rail0, rail1, rail2" in line


def of_two_sets(second: tuple[int, ...]) -> dict[str, Facts]:
    facts = four()
    for number in second:
        for of in node(facts, number)["neighbours"].values():
            of["system"] = of["system"].replace("leaf0", "leaf1")
    return facts


def test_alternating_leaf_sets_are_not_drafted() -> None:
    draft = drafted(of_two_sets((2, 4)))
    assert found(draft) == []
    assert "count: 8 # CHECK: " in draft.text


def test_nodes_of_two_leaf_sets() -> None:
    facts = of_two_sets((3, 4))
    node(facts, 4)["neighbours"] = None
    draft = drafted(facts)
    assert found(draft) == [(HOSTS[3], "", "LLDP", "no answer", "answers (3 of 4)")]
    assert draft.cluster.nodes[2].rails[0].leaf == "leaf11"
    assert draft.cluster.nodes[1].rails[7].leaf == "leaf08"


def test_one_network_contains_those_of_all_racks() -> None:
    facts = four()
    facts["10.10.4.9"] = without_rails("launcher01", "10.10.4.9/24")
    draft = drafted(facts)
    assert "subnet: 10.10.0.0/21 # CHECK: " in draft.text
    assert draft.cluster.launchers[0].management["address"] == "10.10.4.9"


def test_gaps_in_inventory_names() -> None:
    facts = four()
    draft = drafted({f"gpu{7 + place:03d}": facts[HOSTS[place]] for place in (0, 1, 3)})
    assert "name: gpu{:03d}\n  start: 7\n" in draft.text
    assert "absent: [gpu009]" in draft.text
    assert [node.name for node in draft.cluster.nodes] == ["gpu007", "gpu008", "gpu010"]


@pytest.mark.parametrize("nameless", [1, 4])
def test_new_names_follow_addresses(nameless: int) -> None:
    facts = four()
    for address in HOSTS[:nameless]:
        facts[address]["rdma_host"]["name"] = "localhost"
    draft = drafted(dict(reversed(facts.items())))
    assert [(node.name, node.management["address"]) for node in draft.cluster.nodes] == [
        (f"node{number:02d}", address) for number, address in enumerate(HOSTS, 1)
    ]


def test_groups_of_the_inventory_decide_who_launches() -> None:
    facts = {
        **four(),
        "store": without_rails("store", "10.10.0.9/22"),
        "head": without_rails("head", "10.10.0.8/22"),
    }
    draft = drafted(facts, launcher=["head"])
    assert draft.cluster.launchers[0].name == "head"
    assert [each.name for each in draft.cluster.storage] == ["store"]
    facts["head2"] = without_rails("head2", "10.10.0.7/22")
    draft = drafted(facts, launcher=["head", "head2"])
    assert [each.name for each in draft.cluster.launchers] == ["head", "head2"]
    assert [each.name for each in draft.cluster.storage] == ["store"]


def test_text_of_a_switch_stays_in_a_comment() -> None:
    facts = four()
    for each in facts.values():
        for of in each["rdma_host"]["neighbours"].values():
            of["description"] = "first\nname: \x07evil"
    draft = drafted(facts)
    assert "# LLDP heard: first name: evil\n" in draft.text
    assert draft.cluster.name == "cluster"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"10.0.0.1": without_rails("a", "10.0.0.1/24")}, "no rails were found"),
        (
            {**four(), "192.0.2.9": without_rails("launcher01", "192.0.2.9/24")},
            "no common network",
        ),
    ],
)
def test_machines_that_allow_no_draft(facts: dict[str, Facts], words: str) -> None:
    with pytest.raises(NoDraftError, match=words):
        drafted(facts)


# Drafts of modelled machines


@pytest.mark.parametrize("name", ["b300", "virtual", "virtual-mixed", "virtual-rdma"])
def test_machines_of_an_inventory(name: str) -> None:
    inventory = inventory_of(load(str(ROOT / f"inventories/{name}/cluster.yml")))
    draft = drafted(of_model(inventory), launcher=["launcher01"], storage=["storage01"])
    # The system determines port names; missing GPUs are only in the model.
    unseen = ("leaf_port", *(() if name == "b300" else ("gpu", "numa")))
    assert rails(inventory_of(draft.cluster), *unseen) == rails(inventory, *unseen)
    assert found(draft) == []
    assert draft.cluster.launchers[0].management["address"].endswith(".0.10")


MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: made
management: {{subnet: 10.0.0.0/22}}
nodes: {{count: {nodes}, management_first: 10.0.0.11, name: "n{{:0{width}d}}"}}
{gpus}rails: {{count: {rails}, planes: {planes}, speed_gbps: {speed}, mtu: {mtu}{pci}}}
addresses: {{plan: {plan}, pool: 10.1.0.0/16{first}}}
leaves: {{count: {leaves}, ports: 64, management_first: 10.0.3.1, nodes_per_set: {per_set}}}
launcher: {{name: head, management: 10.0.0.10}}
"""


@given(
    st.fixed_dictionaries(
        {
            "nodes": st.integers(1, 12),
            "per_set": st.integers(3, 12),
            "rails": st.integers(1, 4),
            "planes": st.integers(1, 2),
            "plan": st.sampled_from(["subnet_per_rail", "point_to_point"]),
            "speed": st.sampled_from([100, 400, 800]),
            "mtu": st.sampled_from([4200, 9000]),
            "width": st.integers(2, 4),
        }
    ),
    st.integers(2, 40),
)
def test_a_draft_of_modelled_machines(values: dict[str, Any], first: int) -> None:
    count, planes = values["rails"], values["planes"]
    pci = [[f"0000:{rail + 16:02x}:00.{plane}" for plane in range(planes)] for rail in range(count)]
    gpus = [f"0000:{rail + 64:02x}:00.0" for rail in range(count)]
    inventory = compiled(
        MODEL.format(
            **values,
            gpus=f"gpus: {{count: {count}, pci: {gpus}}}\n",
            pci=f", pci: {pci if planes > 1 else [each[0] for each in pci]}",
            first=f", first_host: {first}" if values["plan"] == "subnet_per_rail" else "",
            leaves=count * planes * -(-values["nodes"] // values["per_set"]),
        )
    )
    draft = drafted(of_model(inventory))
    assert rails(inventory_of(draft.cluster)) == rails(inventory)
    assert found(draft) == []


KINDS = """\
plugin: baremetal.mpi_roce.cluster
name: made
management: {{subnet: 10.0.0.0/22}}
kinds:
  h100:
    gpus: {{count: 2, pci: ['0000:90:00.0', '0000:91:00.0'], numa: [0, 1]}}
    rails: {{count: {rails}, speed_gbps: {speed}, pci: {pci}}}
nodes:
  - {{count: 2, management_first: 10.0.0.11, name: "b300-{{:02d}}"}}
  - {{count: {others}, management_first: 10.0.0.21, name: "h100-{{:02d}}", kind: h100}}
gpus: {{count: 3, pci: ['0000:40:00.0', '0000:41:00.0', '0000:42:00.0'], numa: [0, 0, 1]}}
rails: {{count: 3, speed_gbps: 800, pci: ['0000:10:00.0', '0000:11:00.0', '0000:12:00.0']}}
addresses: {{pool: 10.1.0.0/16}}
leaves: {{count: 3, ports: 64, management_first: 10.0.3.1}}
launcher: {{name: head, management: 10.0.0.10}}
"""


@pytest.mark.parametrize(("count", "speed", "others"), [(2, 800, 2), (2, 400, 3), (1, 800, 5)])
def test_nodes_that_differ_are_drafted_as_a_kind(count: int, speed: int, others: int) -> None:
    pci = [f"0000:a{rail}:00.0" for rail in range(count)]
    inventory = compiled(KINDS.format(rails=count, speed=speed, pci=pci, others=others))
    facts = of_model(inventory)
    draft = drafted(facts, launcher=["head"])
    drafts = inventory_of(draft.cluster)
    assert rails(drafts) == rails(inventory)
    assert [(node.name, node.kind) for node in draft.cluster.nodes if node.kind == "h100"] == [
        (f"h100-{number:02d}", "h100") for number in range(1, others + 1)
    ]
    for made, reference in zip(draft.cluster.nodes, inventory.hosts):
        assert made.gpus == inventory.merged(reference)["cluster_gpus"]
    assert found(draft) == []
    facts["h100-02"]["rdma_host"]["interfaces"]["rail0"]["mtu"] = 1500
    share = f"9000 ({others - 1} of {others})"
    differing = found(drafted(facts, launcher=["head"]))
    assert len(differing) == 1 and differing[0][:4] == ("h100-02", "rail0", "MTU", "1500")
    assert others == 2 or differing[0][4] == share


def test_one_node_that_differs_is_no_kind() -> None:
    pci = ["0000:a0:00.0"]
    inventory = compiled(KINDS.format(rails=1, speed=800, pci=pci, others=1))
    draft = drafted(of_model(inventory), launcher=["head"])
    assert {node.kind for node in draft.cluster.nodes} == {""}
    assert {host for host, *_rest in found(draft)} == {"h100-01"}


def test_a_node_with_other_pci_addresses() -> None:
    text = (ROOT / "inventories/b300/cluster.yml").read_text(encoding="utf-8")
    pci = [f"0000:{number:02x}:00.0" for number in range(0xE0, 0xE8)]
    other = f"  overrides: {{node03: {{pci: {pci}}}}}\n"
    inventory = compiled(
        text.replace("  count: 4\n  name: node", f"  count: 4\n{other}  name: node")
    )
    draft = drafted(of_model(inventory))
    assert rails(inventory_of(draft.cluster), "leaf_port") == rails(inventory, "leaf_port")
    assert [row[:4] for row in found(draft)] == [
        ("node03", f"rail{rail}", "NIC", place) for rail, place in enumerate(pci)
    ]


# Differences from a model


def compared(facts: dict[str, Facts]) -> list[tuple[str, ...]]:
    inventory = inventory_of(load(str(ROOT / "inventories/b300/cluster.yml")))
    variables = {each.name: inventory.merged(each) for each in inventory.hosts}
    return [tuple(each) for each in against_model(machines(facts), variables)]


def as_modelled() -> dict[str, Facts]:
    inventory = inventory_of(load(str(ROOT / "inventories/b300/cluster.yml")))
    facts = of_model(inventory)
    for each in facts.values():
        each["rdma_host"]["packages"] = {"doca-ofed": "3.2.1-1"}
        each["rdma_host"]["gpu_driver"] = inventory.group_variables["all"]["cluster_software"][
            "driver"
        ]["version"]
    return facts


def test_common_differences_from_the_model() -> None:
    assert compared(as_modelled()) == []
    facts = {**as_modelled(), "node03": recorded(MISSING, 3)}
    for each in facts.values():
        each["rdma_host"]["kernel"] = "6.8.0-50-generic"
    facts["node02"]["rdma_host"]["name"] = "other"
    facts["node02"]["rdma_host"]["interfaces"]["rail4"].update(addresses=["10.9.9.9/24"], mtu=1500)
    heard = facts["node04"]["rdma_host"]["neighbours"]
    heard["rail0"], heard["rail7"] = heard["rail7"], heard["rail0"]
    facts["node03"]["rdma_host"]["interfaces"]["rail4"]["addresses"] = []
    # A SONiC switch sends aliases, so that only the switch of a cable is comparable.
    facts["node01"]["rdma_host"]["neighbours"]["rail1"] = neighbour("leaf02", "etp1")
    differing = compared(facts)
    assert ("node03", "rail3", "NIC", "missing", RAIL3) in differing
    assert ("node02", "rail4", "MTU", "1500", "9000 (model)") in differing
    assert ("node02", "rail4", "address", "10.9.9.9/24", "10.100.4.12/24 (model)") in differing
    assert ("node03", "rail4", "address", "none", "its own (model)") in differing
    assert ("node02", "", "host name", "other", "node02 (model)") in differing
    kernels = [row for row in differing if row[2] == "kernel"]
    assert len(kernels) == 4
    assert [row[:2] for row in differing if row[2] == "cable"] == [("node04", "rail0")]


def test_the_management_address_is_that_of_ssh() -> None:
    facts = {"node01": {**without_rails("node01", "10.10.1.1/22")}}
    system = host("node01", "10.10.1.1/22")
    system["interfaces"]["eno2"] = {**system["interfaces"]["mgmt0"], "addresses": ["10.20.0.1/24"]}
    facts["node01"]["rdma_host"] = {**system, "login": "10.20.0.1"}
    (machine,) = machines(facts)
    assert (str(machine.address), machine.interface) == ("10.20.0.1/24", "eno2")


HOSTILE = (
    "\"\nvars:\n  all: {x: \"{{ lookup('pipe', 'id') }}\"}",
    "a\n  b: c",
    "{{ 7 * 7 }}",
    "{% set x = 1 %}",
    "x: y #",
    "!!python/object/apply:os.system [id]",
    "\u2028vars:",
    "a" * 100_000,
    10**5000,
    float("inf"),
    -7,
    True,
    None,
    ["x"],
    {"vars": {"all": "{{ x }}"}},
)


PLACES = places(recorded(B300, 1))


@given(
    st.sampled_from(PLACES),
    st.sampled_from(HOSTILE) | st.text(max_size=40),
    st.booleans(),
    st.sampled_from([1, 4]),
)
def test_whatever_machines_answer_a_draft_has_its_own_keys_and_no_template(
    place: tuple[Any, ...], bad: Any, as_key: bool, count: int
) -> None:
    facts = four()
    for address in HOSTS[:count]:
        at: Any = facts[address]
        for key in place[:-1]:
            at = at[key]
        if place and as_key and isinstance(at, dict) and isinstance(bad, str):
            at[bad] = at.pop(place[-1])
        elif place:
            at[place[-1]] = copy.deepcopy(bad)
        else:
            facts[address] = copy.deepcopy(bad) if isinstance(bad, dict) else {}
    read = []
    for address, each in facts.items():
        with contextlib.suppress(AnswerError):
            read += machines({address: each})
    try:
        text = Draft(read, {}).text
    except (NoDraftError, ModelError):
        return
    assert set(yaml.safe_load(text)) <= SECTIONS and "vars" not in text
    assert not re.search(r"{[{%#]", text) and "49 " not in text
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text) < 20_000


def test_a_machine_with_invalid_positions_is_named() -> None:
    facts = four()
    evil = "vars:\n  all:\n    x: \"{{ lookup('ansible.builtin.pipe', 'id') }}\""
    facts[HOSTS[0]]["rdma_hardware"]["gpus"][-1]["pci"] += '"\n' + evil
    with pytest.raises(AnswerError, match="position of a GPU"):
        machines(facts)


def test_a_template_in_what_says_that_it_is_a_draft_is_refused() -> None:
    text = drafted(four()).text
    template = text + "vars:\n  all:\n    x: \"{{ lookup('pipe', 'id') }}\"\n"
    with pytest.raises(ModelError) as caught:
        compile_model(read_model("cluster.yml", template))
    (finding,) = caught.value.findings
    assert (finding.code, finding.path) == ("model.draft_template", ("vars", "all", "x"))
    _first, _end, rest = template.partition("\n")
    assert compile_model(read_model("cluster.yml", rest)).group_vars["all"]
