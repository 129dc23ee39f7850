# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node verifies itself by playbooks/pull.yml, without the controller. Ansible is copied to it, as
all nodes have the Python of this machine."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nodes import RECAP, TOP, Nodes

NODE = "node01"
OPT, SERVED, METRICS = "/opt/pull", "/srv/pull", "/var/lib/node_exporter/drift.prom"
PACKAGES = (
    *("ansible", "cryptography", "cffi", "jinja2", "markupsafe", "packaging", "resolvelib", "yaml"),
    *("pycparser", "_cffi_backend*.so", "ansible_core-*.dist-info", "jinja2-*.dist-info"),
)
CONTENT = ("galaxy.yml", "layers", "meta", "playbooks", "plugins", "roles")


def copied(nodes: Nodes, folder: Path, names: list[str], to: str) -> None:
    nodes.on(NODE).check_output(f"mkdir -p {to}")
    with subprocess.Popen(
        ["tar", "-C", folder, "--exclude=__pycache__", "-cz", *names], stdout=subprocess.PIPE
    ) as packed:
        subprocess.run(
            ["ssh", "-F", nodes.ssh_config, NODE, f"sudo tar -C {to} --no-same-owner -xz"],
            stdin=packed.stdout,
            check=True,
        )
    assert packed.returncode == 0


@pytest.fixture(scope="module")
def pulled(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Nodes of which one has Ansible, the collection, and its snapshot."""
    published = tmp_path_factory.mktemp("published")
    words = {"pull_directory": str(published), "pull_from": SERVED, "pull_textfile": METRICS}
    nodes.play("playbooks/pull_publish.yml", "-e", json.dumps({**words, "pull_renew": True}))
    packages = Path(sysconfig.get_paths()["purelib"])
    names = [path.name for pattern in PACKAGES for path in packages.glob(pattern)]
    copied(nodes, packages, names, f"{OPT}/lib")
    collection = f"{OPT}/collections/ansible_collections/baremetal/mpi_roce"
    copied(nodes, TOP, list(CONTENT), collection)
    (folder,) = published.iterdir()
    copied(nodes, folder, [f"{NODE}.snapshot"], SERVED)
    yield nodes
    left = "/etc/baremetal-mpi-roce/pull /var/lib/baremetal-mpi-roce/pull"
    nodes.on(NODE).check_output(f"rm -rf {OPT} {SERVED} {left} {METRICS}")


def pull(nodes: Nodes, *words: str) -> tuple[int, str, dict[str, Any]]:
    """Exit status, output and report of a run on the node."""
    variables = {
        "PYTHONPATH": f"{OPT}/lib",
        "ANSIBLE_COLLECTIONS_PATH": f"{OPT}/collections",
        "ANSIBLE_CALLBACKS_ENABLED": "baremetal.mpi_roce.summary",
        "ANSIBLE_INJECT_FACT_VARS": "false",
        "BAREMETAL_MPI_ROCE_REPORTS": f"{OPT}/reports",
        "LC_ALL": "C.UTF-8",
    }
    argv = ["env", *(f"{name}={value}" for name, value in variables.items())]
    argv += ["python3", "-m", "ansible", "playbook", "-i", "localhost,"]
    done = nodes.on(NODE).run(" ".join([*argv, "baremetal.mpi_roce.pull", *words]))
    newest = nodes.on(NODE).run(f"cat $(ls -1 {OPT}/reports/*/drift-*.json | tail -1)")
    return done.rc, done.stdout + done.stderr, json.loads(newest.stdout or "{}")


def test_a_node_verifies_itself_and_repairs_only_if_asked(pulled: Nodes) -> None:
    node = pulled.on(NODE)
    boot = node.check_output("cat /proc/sys/kernel/random/boot_id")
    status, output, report = pull(pulled)
    assert (status, report["verdict"]) == (0, "no drift"), output
    assert report["hosts"] == {"asked": 1, "answered": 1, "silent": {}}
    assert 'baremetal_drift_findings{layer="rails"} 0' in node.file(METRICS).content_string
    # A difference is found, and stays.
    node.check_output("ip link set rail0 mtu 1500")
    status, output, report = pull(pulled, "--tags", "rails")
    found = [(each["host"], each["check"], each["subject"]) for each in report["findings"]]
    assert (status, report["verdict"]) == (2, "drift"), output
    assert (NODE, "rail_mtu", "rail0") in found
    assert "mtu 1500" in node.check_output("ip link show rail0")
    status, output, report = pull(pulled, "--tags", "rails", "-e", "pull_apply=true")
    assert (status, report["verdict"]) == (0, "no drift"), output
    assert "mtu 9000" in node.check_output("ip link show rail0")
    assert node.check_output("cat /proc/sys/kernel/random/boot_id") == boot


def test_a_snapshot_that_somebody_changed_stops_the_run(pulled: Nodes) -> None:
    node, snapshot = pulled.on(NODE), f"{SERVED}/{NODE}.snapshot"
    node.check_output(f"sed -i.bak s/9000/1500/ {snapshot}")
    try:
        status, output, _report = pull(pulled, "-e", "pull_apply=true")
        assert status == 2
        assert [host for host, _counts in RECAP.findall(output)] == ["localhost"]
    finally:
        node.check_output(f"mv {snapshot}.bak {snapshot}")


def test_the_hardened_unit_verifies_the_node(pulled: Nodes) -> None:
    node, name = pulled.on(NODE), "baremetal-mpi-roce-pull.service"
    units = "/run/systemd/system"
    settings = [
        "ExecStart=",
        "ExecStart=/usr/bin/python3 -m ansible playbook -i localhost, baremetal.mpi_roce.pull",
        f"Environment=PYTHONPATH={OPT}/lib ANSIBLE_COLLECTIONS_PATH={OPT}/collections",
        f"ReadWritePaths={Path(METRICS).parent}",
    ]
    copied(pulled, TOP / "docs/examples/pull", [name], units)
    node.check_output("mkdir -p %s", f"{units}/{name}.d")
    lines = "\\n".join(["[Service]", *settings])
    node.check_output(f"printf '{lines}\\n' > {units}/{name}.d/test.conf")
    node.check_output("rm -f %s && systemctl daemon-reload", METRICS)
    try:
        started = node.run("systemctl start %s", name)
        journal = node.check_output("journalctl --no-pager -u %s", name)
        assert started.rc == 0, journal
        assert 'baremetal_drift_findings{layer="rails"} 0' in node.file(METRICS).content_string
    finally:
        node.check_output(f"rm -r {units}/{name} {units}/{name}.d && systemctl daemon-reload")


def test_a_node_renews_its_certificates(pulled: Nodes, tmp_path: Path) -> None:
    """The layer ssh then takes them as they are, and revokes the former ones."""
    node, launcher = pulled.on(NODE), pulled.group("launcher")[0]
    path = "/etc/baremetal-mpi-roce/ssh/ssh_host_ed25519_key-cert.pub"
    before = node.file(path).content_string
    words = {"pull_directory": str(tmp_path), "pull_renew": True, "pull_hosts": [NODE]}
    days = {"ssh_trust_validity_days": 120, "ssh_trust_renew_days": 100}
    pulled.play("playbooks/pull_publish.yml", "-e", json.dumps({**words, **days}))
    (folder,) = tmp_path.iterdir()
    copied(pulled, folder, [f"{NODE}.snapshot"], SERVED)
    status, output, _report = pull(pulled, "--tags", "node_check")
    assert status == 0, output
    after = node.file(path).content_string
    assert after != before
    pulled.as_user(launcher, f"ssh {NODE} true")
    run = pulled.play("playbooks/ssh.yml")
    assert node.file(path).content_string == after
    assert not run.failed("ssh")
