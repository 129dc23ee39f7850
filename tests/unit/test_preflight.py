# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Conditions that stop the first run on a node, and the display for many nodes."""

from __future__ import annotations

import http.server
import os
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check, as_dicts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.distribution import DEBIAN
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import FilePlan
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.package import Location
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.preflight import answers, node
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.answers import checks as checks_of
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import preflight
from hypothesis import given

from tests.unit import software_sets
from tests.unit.gpu_node import KERNEL, GpuNode
from tests.unit.hostile import spoilt
from tests.unit.rails_host import FakeHost, rail

HEADERS = f"linux-headers-{KERNEL}"

# Repositories


@dataclass
class Site:
    """A repository server, or a proxy in front of it."""

    there: Mapping[str, int]
    asked: list[str] = field(default_factory=list)
    logins: list[Optional[str]] = field(default_factory=list)
    waits: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def serving(self) -> Iterator[str]:
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                site.logins.append(self.headers.get("Authorization"))
                if self.path == "/late":
                    site.waits.wait(30)
                self.send_response(site.there.get(self.path, 404))
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            self.waits.set()
            server.shutdown()
            thread.join()
            server.server_close()


def found(*locations: Location) -> list[tuple[str, str]]:
    return [(each.status, each.found) for each in answers.checks(locations)]


def test_a_repository_answers_by_its_release_with_a_signature_or_without(tmp_path: Path) -> None:
    (tmp_path / "in place").touch()
    site = Site({"/signed/InRelease": 200, "/old/Release": 200, "/no/InRelease": 403, "/us": 401})
    with site.serving() as address:
        urls = [
            [f"http://{address}/signed/InRelease", f"http://{address}/signed/Release"],
            [f"http://{address}/old/InRelease", f"http://{address}/old/Release"],
            [f"http://{address}/no/InRelease"],
            [f"http://{address}/us"],
            [f"file:{tmp_path}/in%20place"],
            [f"file:{tmp_path}/gone", f"file:{tmp_path}/gone too"],
            ["cdrom:[Debian]/dists/x/InRelease"],
        ]
        seen = found(*map(Location, urls))
    assert seen == [
        ("ok", "an answer"),
        ("ok", "an answer"),
        ("failed", "HTTP 403 Forbidden"),
        ("ok", "HTTP 401 Unauthorized"),
        ("ok", "an answer"),
        ("failed", "no such file"),
    ]


def test_a_login_of_the_address_is_used_and_not_shown() -> None:
    site = Site({"/ours": 200, "/theirs": 401})
    with site.serving() as address:
        urls = [f"http://ann:s%40cret@{address}/ours", f"http://ann:no@{address}/theirs"]
        checks = [each for url in urls for each in answers.checks([Location([url])])]
    assert [each.status for each in checks] == ["ok", "failed"], "refused credentials are no note"
    assert site.logins[0] == f"Basic {b64encode(b'ann:s@cret').decode()}"
    assert not any("ann" in str(as_dicts([each])) for each in checks)


def test_a_repository_is_asked_through_the_proxy_of_the_package_manager() -> None:
    """The name does not resolve, so only a proxy can have answered."""
    site, url = Site({"http://repo.invalid/InRelease": 200}), "http://repo.invalid/InRelease"
    with site.serving() as address:
        (through,) = found(Location([url], proxy=f"http://{address}"))
        ((direct, why),) = found(Location([url], proxy="DIRECT"))
    assert through == ("ok", "an answer")
    assert site.asked == [url]
    assert direct == "failed"
    assert "Name or service not known" in why or "name resolution" in why


def test_late_or_optional_repository_shows_no_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "TOTAL_S", 1.0)
    with Site({}).serving() as address:
        late, skipped = answers.checks(
            [
                Location([f"http://ann:secret@{address}/late"]),
                Location(["file:/no/such"], needed=False),
            ]
        )
    assert (late.status, late.found) == ("failed", "none within 1 s")
    assert late.subject == f"http://{address}/late"
    assert (skipped.status, skipped.found) == ("ok", "no such file")
    assert skipped.reason


# A node


@dataclass
class Packages:
    """A package manager with installed and available packages."""

    installed_: dict[str, str] = field(default_factory=dict)
    available_: dict[str, list[str]] = field(default_factory=lambda: {"dpkg": ["1"]})
    interrupted_: dict[str, str] = field(default_factory=dict)
    rivals_: list[FilePlan] = field(default_factory=list)
    owners_: dict[str, str] = field(default_factory=dict)
    pinned_: dict[str, str] = field(default_factory=dict)
    wait_s = 300.0

    def pinned(self) -> Mapping[str, str]:
        return self.pinned_

    def interrupted(self) -> Mapping[str, str]:
        return self.interrupted_

    def rivals(self) -> list[FilePlan]:
        return self.rivals_

    def owner(self, path: str) -> str:
        return self.owners_.get(path, "")

    def installed(self) -> Mapping[str, str]:
        return {"dpkg": "1", **self.installed_}

    def available(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        return {name: self.available_.get(name, []) for name in names}

    def locations(self) -> list[Location]:
        return []


@dataclass
class Looked:
    root: Path
    packages: Packages
    host: GpuNode
    rails: FakeHost
    given: dict[str, Any]

    def run(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        if argv[:2] == ("systemctl", "is-active"):  # NetworkManager
            return Result(tuple(argv), 3, "", "")
        if argv[0] in ("ip", "networkctl", "systemctl"):
            return self.rails.run(argv, check=check, stdin=stdin)  # type: ignore[no-any-return]
        return self.host.run(argv, check=check, stdin=stdin)

    def there(self, **given: Any) -> node.Preflight:
        options = {**self.given, "clock": time.time(), **given}
        at = replace(self.host.node(check_mode=True), run=self.run, container=None)
        return node.Preflight(options, at)

    def checks(self, **given: Any) -> list[Check]:
        return self.there(**given).checks()

    def findings(self, **given: Any) -> set[tuple[str, str, str]]:
        checks = self.checks(**given)
        return {(x.name, x.subject, x.status) for x in checks if x.status == "failed" or x.reason}


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looked:
    """A node with a complete set, on which nothing blocks a layer."""
    host, packages = GpuNode(tmp_path), Packages({HEADERS: "6.8.0-79.79"})
    for path, text in (
        ("etc/os-release", "ID=ubuntu\nVERSION_ID=24.04\n"),
        ("usr/lib/systemd/systemd-networkd", ""),
        ("proc/self/mountinfo", ""),
        ("dev/ipmi0", ""),
    ):
        host.write(path, text)
    monkeypatch.setattr(node, "manager_of", lambda *_: packages)
    monkeypatch.setattr(node, "login_address", lambda: "")
    monkeypatch.setattr(
        node.os, "statvfs", lambda _path: SimpleNamespace(f_bavail=1 << 24, f_frsize=4096)
    )
    given = {
        "software": software_sets.software().as_variable(),
        "rails": [rail(0), rail(1)],
        "gpus": [{"index": 0, "pci": None, "numa": None}],
        "management": {"address": "10.10.1.1", "prefix": 22},
        "hardware_root": str(tmp_path),
    }
    return Looked(tmp_path, packages, host, FakeHost(tmp_path), given)


def test_nothing_is_found_where_nothing_is_in_the_way(looked: Looked) -> None:
    before = sorted(looked.root.rglob("*"))
    assert looked.findings() == set()
    assert sorted(looked.root.rglob("*")) == before
    assert looked.rails.changing_commands() == []


Fault = Callable[[Looked], object]


def foreign(looked: Looked) -> None:
    looked.host.write("etc/netplan/50-site.yaml", "network:\n  ethernets:\n    rail1:\n")


def without_headers(looked: Looked) -> None:
    looked.packages.installed_.clear()


def secure_boot(looked: Looked) -> None:
    looked.host.secure_boot = True


CUDA_LIST = "/etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list"


def packages(**changes: Any) -> Fault:
    """What the package manager has, in place of what it had or, in a dict, in addition."""

    def fault(looked: Looked) -> None:
        for name, value in changes.items():
            before = getattr(looked.packages, name)
            setattr(looked.packages, name, {**before, **value} if value and before else value)

    return fault


def other_driver(looked: Looked) -> None:
    looked.packages.installed_["nvidia-dkms-570-server"] = "570"


def driver_of_others(looked: Looked) -> None:
    other_driver(looked)
    looked.host.write("usr/bin/nvidia-uninstall", "")
    gone = dict.fromkeys(("dcgm", "gdrcopy", "nccl"))
    found = software_sets.software(driver={"manage": False}, **gone)
    looked.given["software"] = found.as_variable()


def interface(name: str) -> Fault:
    return lambda looked: looked.given["rails"][1].update(interface=name)


def other_kernel(looked: Looked) -> None:
    """The layer rdma installs it."""
    looked.given["software"] = software_sets.software(kernel="6.8.0-90-generic").as_variable()
    looked.packages.available_["linux-headers-6.8.0-90-generic"] = ["6.8.0-90.91"]
    looked.packages.available_["linux-image-6.8.0-90-generic"] = ["6.8.0-90.91"]


def hpcx_away(looked: Looked) -> None:
    archive = {"distribution": "ubuntu24.04", "url": "file:///gone/hpcx.tbz", "sha256": "0" * 64}
    mpi = {"provider": "hpcx", "archives": [{**archive, "prefix": "/opt/hpcx"}]}
    looked.given["software"]["mpi"] = {**looked.given["software"]["mpi"], **mpi}


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (foreign, {("rail_claim", "rail1", "failed")}),
        (interface("mgmt0"), {("rail_name", "mgmt0", "failed")}),
        # DOCA's drivers, which are not installed yet, may create it.
        (interface("rail9"), {("rail_name", "rail9", "ok")}),
        (without_headers, {("kernel_headers", each, "failed") for each in ("rdma", "gpu")}),
        (packages(installed_={}, available_={}), set()),
        (secure_boot, {("layer_plan", each, "failed") for each in ("rdma", "gpu")}),
        (other_driver, {("layer_plan", "gpu", "failed")}),
        (driver_of_others, set()),
        (packages(installed_={"libucx0": "1.16"}), {("packages_replaced", "rdma", "ok")}),
        # apt refuses every change until it is configured, which would stop the layer `os`.
        (packages(interrupted_={"pmix": "left"}), {("packages_interrupted", "", "failed")}),
        (
            packages(interrupted_={"doca-ofed": "left"}, pinned_={"doca-ofed": "3.2.1"}),
            {("packages_interrupted", "", "ok")},
        ),
        (
            packages(owners_={"/etc/pmix-mca-params.conf": "pmix"}, installed_={"pmix": "4.2.9-2"}),
            {("layer_plan", "rdma", "failed")},
        ),
        (
            packages(rivals_=[FilePlan(Path(CUDA_LIST), "deb", "# deb")]),
            {("repository_twice", CUDA_LIST, "ok")},
        ),
        (other_kernel, {("kernel_release", "gpu", "ok")}),
        (hpcx_away, {("repository_answers", "file:///gone/hpcx.tbz", "failed")}),
        (lambda looked: looked.host.process(4711, "orted"), {("node_busy", "", "ok")}),
        (lambda at: (at.root / "dev/ipmi0").unlink(), {("remote_power", "", "ok")}),
    ],
)
def test_what_is_in_the_way_is_named(
    looked: Looked, fault: Fault, expected: set[tuple[str, str, str]]
) -> None:
    fault(looked)
    assert looked.findings() == expected


@pytest.mark.parametrize(
    ("release", "status"),
    [("5.14.0-687.5.1.el9_8.x86_64", "failed"), ("6.14.0-33-generic", "ok")],
)
def test_the_running_kernel_is_checked_where_the_set_names_none(
    looked: Looked, release: str, status: str
) -> None:
    """DOCA builds for it. Drivers that are built already need no table."""
    looked.host.write("proc/sys/kernel/osrelease", f"{release}\n")
    looked.packages.installed_[f"linux-headers-{release}"] = "1"
    found = [each for each in looked.checks() if each.name == "doca_kernel"]
    assert [(each.found, each.status) for each in found] == [(release, status)]
    assert release in found[0].reason
    looked.packages.installed_["doca-ofed"] = "3.2.1-1"
    assert not [each for each in looked.checks() if each.name == "doca_kernel"]


def test_a_clock_that_repositories_would_not_take_is_named(looked: Looked) -> None:
    expected = {("clock", "", "failed")}
    assert looked.findings(clock=time.time() + 30) == expected
    assert looked.findings(clock=time.time() - 90) == expected
    assert looked.findings(clock=time.time() - 20) == set(), "a module takes its time"


def test_time_that_repositories_take_to_answer_is_not_the_clocks(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    clock = SimpleNamespace(time=lambda: now)

    def late() -> list[Location]:
        clock.time = lambda: now + 90
        return []

    monkeypatch.setattr(node, "time", clock)
    monkeypatch.setattr(looked.packages, "locations", late)
    assert looked.findings(clock=now) == set()


def test_room_is_wanted_for_what_is_still_to_come(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(f_bavail=1 << 20, f_frsize=4096)
    monkeypatch.setattr(node.os, "statvfs", lambda _path: free)
    ((_name, subject, status),) = looked.findings()
    assert status == "failed"
    assert subject.split(", ")[0] == "/"
    installed = {"doca-ofed": "3.2.1-1", "cuda-toolkit-13-0": "13.0.2-1"}
    looked.packages.installed_.update(installed)
    assert looked.findings() == set()
    free.f_bavail = 0
    assert {name for name, _subject, _status in looked.findings()} == {"disk_space"}


def test_what_is_optional_and_nowhere_needs_no_room(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later releases of Ubuntu have no linux-modules-extra."""
    free = SimpleNamespace(f_bavail=8 << 10, f_frsize=4096)
    monkeypatch.setattr(node.os, "statvfs", lambda _path: free)
    looked.host.write(f"boot/initrd.img-{KERNEL}", "")
    os.truncate(looked.root / f"boot/initrd.img-{KERNEL}", 200 << 20)
    looked.packages.installed_.update(dict.fromkeys(DEBIAN.inbox_rdma, "1"))
    gone = dict.fromkeys(("driver", "cuda", "dcgm", "gdrcopy", "nccl"))
    inbox = software_sets.software(rdma={"source": "inbox"}, **gone).as_variable()
    assert looked.findings(software=inbox, gpus=[]) == set()
    del looked.packages.installed_["perftest"]
    assert {each[0] for each in looked.findings(software=inbox, gpus=[])} == {"disk_space"}


def test_a_layer_with_nothing_to_do_is_not_looked_at(looked: Looked) -> None:
    secure_boot(looked)
    without_headers(looked)
    assert looked.findings(gpus=[], rails=[]) == set()
    gone = dict.fromkeys(("driver", "cuda", "dcgm", "gdrcopy", "nccl"))
    inbox = software_sets.software(rdma={"source": "inbox"}, **gone)
    assert looked.findings(software=inbox.as_variable()) == set()


def test_each_layer_without_packages_for_the_system_is_named(looked: Looked) -> None:
    """NVIDIA's packages for Ubuntu 26.04 begin with driver 595 and DOCA 3.4."""
    looked.host.write("etc/os-release", "ID=ubuntu\nVERSION_ID=26.04\n")
    foreign(looked)
    refused = {("layer_plan", layer, "failed") for layer in ("rdma", "gpu")}
    assert looked.findings() == {*refused, ("rail_claim", "rail1", "failed")}
    later = software_sets.software(driver__version="595.91.07", rdma__version="3.4.1")
    found = looked.findings(software=later.as_variable())
    assert found == {("rail_claim", "rail1", "failed")}


@pytest.mark.parametrize("installed", [True, False])
def test_an_open_mpi_that_jobs_cannot_be_started_by_is_named(
    looked: Looked, installed: bool
) -> None:
    """packages.ubuntu.com/resolute: openmpi-bin (5.0.10-1), which depends on libprrte-bin."""
    packages = {"openmpi-bin": "5.0.10-1"} if installed else {}
    looked.packages.installed_ |= packages
    looked.packages.available_["openmpi-bin"] = ["4.1.6-7ubuntu2" if installed else "5.0.10-1"]
    [found] = [each for each in looked.checks() if each.status == "failed"]
    assert (found.name, found.subject) == ("layer_plan", "mpi")
    assert found.reason.startswith("Open MPI 5.0.10 ") and "software.mpi.provider" in found.reason
    looked.packages.installed_.pop("openmpi-bin", None)
    looked.packages.available_["openmpi-bin"] = ["4.1.6-7ubuntu2"]
    assert looked.findings() == set()


def test_unreadable_condition_is_a_finding(looked: Looked) -> None:
    looked.host.write("etc/os-release", "ID=slackware\nVERSION_ID=15\n")
    foreign(looked)
    expected = {("layer_plan", "packages", "failed"), ("rail_claim", "rail1", "failed")}
    assert looked.findings() == expected


# Display


def test_the_same_finding_of_many_hosts_is_one_line() -> None:
    why = "remove the rail from that file"
    checks = [Check("rail_claim", [], ["50.yaml"], "failed", f"rail{n}", why) for n in range(8)]
    busy_ = Check("node_busy", "none", "orted (7)", "ok", "", "they delay it")
    good = Check("clock", "that of the controller", "0 s off", "ok")
    hosts = {f"node{n:03d}": as_dicts([busy_, good, *checks]) for n in range(1, 501) if n != 499}
    busy = [
        Check("disk_space", "16 MiB free", f"{n} B free", "failed", "/", "room") for n in range(5)
    ]
    hosts.update({f"x{n}": as_dicts([each]) for n, each in enumerate(busy)})
    hosts["launcher"] = as_dicts([good])
    shown = preflight.lines(preflight.findings(hosts), len(hosts))
    assert shown == [
        "preflight: 505 hosts, 2 of what was found stops the first run",
        "  STOPS  rail_claim rail0, rail1, rail2, rail3, rail4, rail5, rail6, rail7: "
        "node[001-498,500]",
        "    found ['50.yaml']; wanted []",
        f"    {why}",
        "  STOPS  disk_space /: x[0-4]",
        "    found 0 B free, 1 B free, 2 B free and 2 more; wanted 16 MiB free",
        "    room",
        "  note  node_busy: node[001-498,500]",
        "    found orted (7); wanted none",
        "    they delay it",
    ]
    assert preflight.lines({}, 1) == [
        "preflight: 1 host, nothing of what was found stops the first run"
    ]


def test_addresses_and_single_hosts_are_shown_as_they_are() -> None:
    assert preflight.ranges(["10.0.0.9", "10.0.0.11", "10.0.0.12"]) == "10.0.0.9, 10.0.0.[11-12]"
    assert preflight.ranges(["controller"]) == "controller"


SAID = as_dicts([Check("kernel_headers", "there", ["x"], "failed", "h", "why")])


@given(spoilt(SAID))
def test_whatever_a_host_answers_the_preflight_of_the_others_is_shown(said: Any) -> None:
    read = {"node01": checks_of(said), "node02": checks_of(SAID)}
    lines = preflight.lines(preflight.findings(read), 2)
    assert any("kernel_headers h" in line and "02" in line for line in lines)
    assert all(line.isprintable() for line in lines)
