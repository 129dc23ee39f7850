# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node in a directory on which the tools of a Lustre client (the stand-in) take effect.

systemd is simulated as far as lnet.service and mount units need it: the order of programs, and the
condition by which lnet.service does not change a loaded LNet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    NoAnswerError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import Outcome, settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    FileSystem,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre import (
    LustreKernel,
    LustreSettings,
    read_settings,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.options import lustre_parts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.units import (
    wanted_mounts,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.shared_storage import (
    lustre_settings,
)

from tests.bed.stand_ins.content.lustre_stand_in import Hangs, Machine, method_of
from tests.unit.storage_node import StorageHost

RAILS = [{"interface": "rail0", "rail": 0}, {"interface": "rail1", "rail": 1}]
SOURCE = "10.9.0.1@o2ib:10.9.0.2@o2ib:/lustre"
LUSTRE = FileSystem("ckpt", "lustre", SOURCE, "/lustre", "checkpoints")
PROGRAMS = ("lnetctl", "lctl", "lfs", "mount.lustre")


def settings_of(
    value: Optional[Mapping[str, Any]],
    rails: Sequence[Mapping[str, Any]] = tuple(RAILS),
    filesystems: Sequence[FileSystem] = (LUSTRE,),
) -> LustreSettings:
    """Settings as validated by the action and read by the module."""
    groups = [group for fs in filesystems for group in fs.hosts]
    return read_settings(lustre_settings(value, filesystems, groups), rails, filesystems)


class LustreNode(StorageHost):
    def __init__(self, where: Path) -> None:
        super().__init__(where / "node")
        self.stand_in = Machine(where / "stand-in", self.root)
        self.stand_in.root = self.root  # its kernel is the node's
        self.enabled = self.active = False
        self.notices: list[str] = []
        for name in PROGRAMS:
            self.write(f"usr/sbin/{name}", "")
        self.write("proc/self/mountinfo", "")
        self.write("usr/lib/systemd/system/lnet.service", "")
        for rail in RAILS:
            self.interface(str(rail["interface"]))

    # What tests change.

    def interface(self, name: str, rdma: bool = True) -> None:
        (self.root / "sys/class/net" / name).mkdir(parents=True)
        if rdma:
            folder = self.root / f"sys/class/infiniband/mlx5_{name}/ports/1/gid_attrs/ndevs"
            folder.mkdir(parents=True)
            (folder / "0").write_text(f"{name}\n")

    def change(self, **values: Any) -> None:
        self.stand_in.change(**values)

    def target(self, name: str, **values: Any) -> None:
        targets = self.stand_in.state["targets"]
        targets["lustre"][name] = {**targets["lustre"][name], **values}
        self.change(targets=targets)

    def mount(self, fs: FileSystem = LUSTRE) -> None:
        (only,) = wanted_mounts([fs], "node01", fs.hosts, 600)
        options = ",".join(only.options)
        rc, _out, err = self.stand_in.run("mount.lustre", ["-o", options, fs.source, fs.mount])
        assert rc == 0, err

    def unmount(self, point: str = "/lustre") -> None:
        self.stand_in.run("umount", [point])

    # What tests do.

    def settle(
        self,
        value: Optional[Mapping[str, Any]] = None,
        filesystems: Sequence[FileSystem] = (LUSTRE,),
        *,
        rails: Sequence[Mapping[str, Any]] = tuple(RAILS),
        check_mode: bool = False,
        container: Optional[str] = None,
    ) -> Outcome:
        self.container = container
        node = self.node(check_mode)
        self.calls.clear()
        settings = settings_of(value, rails, filesystems)
        kernel = LustreKernel(self.root, node.look)
        before, after = lustre_parts(settings, filesystems, rails, kernel)
        return settle([*before, *after], node)

    # The programs.

    def program(self, words: list[str]) -> tuple[Any, ...]:
        if words[0] == "systemctl":
            return self._systemctl(words[1:])
        if not hasattr(self.stand_in, method_of(words[0])):
            raise CommandError(f"{words[0]}: not installed (wanted to run: {' '.join(words)})")
        try:
            rc, out, err = self.stand_in.run(words[0], words[1:])
        except Hangs as error:
            raise NoAnswerError(str(error), 30) from error
        self.notices.append(err)
        return rc, out, err

    def _systemctl(self, words: list[str]) -> tuple[int, str, str]:
        verb, unit = words[0], words[-1]
        if verb == "show":
            file = "enabled" if self.enabled else "disabled"
            state = "active" if self.active else "inactive"
            return 0, f"UnitFileState={file}\nActiveState={state}\n", ""
        if verb == "enable":
            self.enabled = True
        elif verb == "stop":
            ran, self.active = self.active, False  # ExecStop does not run for an inactive unit
            return self.stand_in.run("lustre_rmmod", []) if ran else (0, "", "")
        elif verb == "start" and unit == "lnet.service":
            return self._start()
        return 0, "", ""

    def _start(self) -> tuple[int, str, str]:
        if self.stand_in.loaded("lnet"):
            return 0, "", ""  # ConditionPathExists=!/proc/sys/lnet/
        programs = (["modprobe", "lnet"], ["lnetctl", "lnet", "configure"])
        for name, *argv in (*programs, ["lnetctl", "import", "/etc/lnet.conf"]):
            rc, out, err = self.stand_in.run(name, argv)
            if rc:
                return rc, out, err
        self.active = True
        return 0, "", ""
