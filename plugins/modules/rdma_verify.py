#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_verify
short_description: Verifies each rail by RDMA verbs, and the QoS contract on the wire
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.rdma_verify]
description:
  - Measures every rail of every node against the same rail of the next node with perftest and
    UCX, and counts packets meanwhile. Changes nothing.
  - Both ends of a pair must run at the same time, and Ansible's only barrier is the end of a
    task, hence the five steps. V(pairs) and V(report) run only on the controller.
  - Servers run in a transient systemd unit with a time limit. The next run replaces them.
attributes:
  check_mode:
    description: Returns the pairs and the missing packages; starts nothing.
    support: full
"""

EXAMPLES = r"""
- name: Plan the pairs
  baremetal.mpi_roce.rdma_verify:
    step: pairs
    directory: "{{ cluster.directory }}"
    transport: rc
  run_once: true
  register: plan

- name: Measure, after the step serve
  baremetal.mpi_roce.rdma_verify:
    step: drive
    plan: "{{ plan }}"
    qos: "{{ roce_qos }}"
    rails: "{{ cluster_rails }}"
    served: [served]
    min_write_share: 0.9375
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
run_id: {type: str, returned: for V(pairs), description: Name of this run.}
parts: {type: dict, returned: for V(pairs), description: "Pairs and unpaired rails, by host."}
coverage:
  description: >-
    Expected number of directions of cables between switches that carry a test, by model; empty
    without such cables.
  type: dict
  returned: for V(pairs)
incast: {type: str, returned: for V(pairs), description: Where senders are; empty for pairs.}
at_once: {type: int, returned: for V(pairs), description: Hosts that drive in parallel.}
limit_s: {type: float, returned: for V(pairs), description: Time limit of servers.}
missing: {type: list, elements: str, returned: for V(serve), description: Missing packages.}
problems: {type: dict, returned: for V(serve), description: Rails that cannot be served.}
ports: {type: list, elements: int, returned: for V(serve), description: TCP ports of the servers.}
figures:
  description: >-
    For every rail and peer, C(pairs) has each exchange with its figures (10^9 bits per second,
    microseconds), its packets, and the increase of each of the NIC's counters.
  type: dict
  returned: for V(drive)
report: {type: str, returned: for V(report), description: File on the controller.}
"""

from dataclasses import fields
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import commands
from ..module_utils.core.checks import FAILED, Check, end
from ..module_utils.hardware import SurveyError, survey
from ..module_utils.qos import HostSettings
from ..module_utils.verbs import ends, evaluation, exchanges, incast
from ..module_utils.verbs.exchanges import EXCHANGES, INCAST, Half, Options, VerifyRequest

LAYER = "verbs"
REMEDY = "Run again for these rails only: --tags verbs --limit HOST,PEER"


def request_of(params: dict[str, Any]) -> VerifyRequest:
    part = params["part"]
    chosen = tuple(name for name in EXCHANGES if name in params["exchanges"])
    halves = {side: tuple(Half(**half) for half in part[side]) for side in ("drives", "serves")}
    return VerifyRequest(
        settings=HostSettings.of(params["qos"]),
        exchanges=(INCAST,) if part["incast"] else chosen,
        options=Options(**{field.name: params[field.name] for field in fields(Options)}),
        speeds_gbps={rail["interface"]: rail["speed_gbps"] for rail in params["rails"]},
        health=params["health"],
        **{**part, **halves},
    )


def serve(module: AnsibleModule, request: VerifyRequest) -> None:
    missing = exchanges.missing(request.exchanges)
    # The layer mpi installs UCX.
    packages = ["perftest"] if {*missing} & {*exchanges.PERFTEST.values()} else []
    if module.check_mode or (packages and module.params["install"]):
        end(module, LAYER, [], "", missing=packages, problems={}, invocation={})
    if missing:
        advice = (
            f"install {' '.join(packages)} or set rdma_verify_install" if packages else "--tags mpi"
        )
        module.fail_json(
            msg=f"verbs: {', '.join(missing)}: not installed; {advice}", layer=LAYER, checks=[]
        )
    ports, problems = ends.start(request, survey(), commands.run)
    end(module, LAYER, [], "", missing=[], problems=problems, ports=ports, invocation={})


def drive(module: AnsibleModule, request: VerifyRequest) -> None:
    if request.incast:
        pairs = incast.drive(request, survey(), commands.run)
        checks = incast.driven(request, pairs)
    else:
        pairs = ends.drive(request, survey(), commands.run)
        ends.forget(request, commands.run)
        checks = evaluation.driven(request, pairs)
    end(module, LAYER, checks, REMEDY, figures={"pairs": pairs}, invocation={})


def collect(module: AnsibleModule, request: VerifyRequest) -> None:
    try:
        seen = ends.collect(request, commands.run)
    except ends.ServingError as error:
        checks = [Check("served", "served", "not", FAILED, "", str(error))]
        end(module, LAYER, checks, REMEDY, invocation={})
    checks = (incast if request.incast else evaluation).served(request, seen)
    end(module, LAYER, checks, REMEDY, arrived=seen, invocation={})


STEPS = {"serve": serve, "drive": drive, "collect": collect}


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "step": {
        "type": "str",
        "choices": ["pairs", "serve", "drive", "collect", "report"],
        "required": True,
    },
    "directory": {"type": "list", "elements": "dict", "default": []},
    "transport": {"type": "str", "choices": ["tcp", "rc"], "default": "rc"},
    "first_port": {"type": "int", "default": 18515},
    "at_once": {"type": "int", "default": 0},
    "place": {"type": "str", "choices": ["", "leaf", "spine"], "default": ""},
    "incast_senders": {"type": "int", "default": 4},
    "plan": {"type": "dict", "default": {}},
    "served": {"type": "list", "elements": "str", "default": []},
    "driven": {"type": "str", "default": ""},
    "collected": {"type": "str", "default": ""},
    "report_directory": {"type": "path"},
    "qos": {"type": "dict", "default": {}},
    "rails": {"type": "list", "elements": "dict", "default": []},
    "exchanges": {
        "type": "list",
        "elements": "str",
        "choices": ["write_bw", "write_lat", "send_bw", "ucx", "gpu_write_bw"],
        "default": ["write_bw", "write_lat", "send_bw", "ucx", "gpu_write_bw"],
    },
    "duration_s": {"type": "int", "default": 2},
    "message_bytes": {"type": "int", "default": 65536},
    "queue_pairs": {"type": "int", "default": 8},
    "iterations": {"type": "int", "default": 1000},
    "messages": {"type": "int", "default": 200},
    "time_limit_s": {"type": "int", "default": 30},
    "min_write_share": {"type": "float"},
    "min_send_share": {"type": "float"},
    "max_latency_us": {"type": "float"},
    "min_gpu_write_share": {"type": "float"},
    "cuda_perftest": {"type": "str", "default": "ib_write_bw"},
    "cuda_dmabuf": {"type": "bool", "default": True},
    "health": {
        "type": "dict",
        "default": {},
        "options": {
            "new_errors": {"type": "int"},
            "raw_ber": {"type": "float"},
            "effective_ber": {"type": "float"},
            "module_celsius": {"type": "float"},
            "power_margin_db": {"type": "float"},
        },
    },
    "install": {"type": "bool", "default": False},
    "part": {"type": "dict", "default": {}},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    # Without its action plugin `part` is missing, and other steps raise KeyError.
    try:
        STEPS[module.params["step"]](module, request_of(module.params))
    except (SurveyError, ends.ServingError, commands.CommandError, OSError) as error:
        module.fail_json(msg=f"verbs: {error}", layer=LAYER, checks=[])


if __name__ == "__main__":
    main()
